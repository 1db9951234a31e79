"""The outline of a user's file: which classes are models, which of them uses which, what functions return."""

from __future__ import annotations

import ast
import inspect
import linecache
import types
from functools import cached_property

from torch import nn

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Outline:
    """The classes and functions that a module defines itself, as its source relates them."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module
        file = getattr(module, "__file__", None) or ""
        linecache.checkcache(file)
        source = "".join(linecache.getlines(file, vars(module)))
        try:
            body = ast.parse(source).body
        except SyntaxError:
            body = []
        self._nodes = {node.name: node for node in body if isinstance(node, ast.ClassDef | Function)}

    @cached_property
    def classes(self) -> list[str]:
        """The nn.Module subclasses that the file defines, in its order."""
        return [
            name
            for name, value in vars(self._module).items()
            if isinstance(value, type)
            and issubclass(value, nn.Module)
            and value.__module__ == self._module.__name__
            and value.__name__ == name
        ]

    def outermost(self) -> list[str]:
        """The classes that no other class uses, directly or through functions and base classes."""
        return [
            name for name in self.classes if not any(name in self._uses(c) for c in self.classes if c != name)
        ]

    def factories(self) -> list[str]:
        """Functions whose source says that they return a model, and that no class uses."""
        used = {name for cls in self.classes for name in self._uses(cls)}
        return [
            name
            for name, node in self._nodes.items()
            if isinstance(node, ast.FunctionDef)
            and name not in used
            and inspect.isfunction(vars(self._module).get(name))
            and self._returns_model(node)
        ]

    def _uses(self, name: str) -> set[str]:
        """The file's own names that a definition mentions, and those that these mention."""
        found: set[str] = set()
        todo = [name]
        while todo:
            node = self._nodes.get(todo.pop())
            for part in ast.walk(node) if node is not None else ():
                if isinstance(part, ast.Name) and part.id in self._nodes and part.id not in found:
                    found.add(part.id)
                    todo.append(part.id)
        return found - {name}

    def _returns_model(self, function: ast.FunctionDef) -> bool:
        if function.returns is not None and self._is_model(function.returns):
            return True
        models = {
            target.id
            for node in ast.walk(function)
            if isinstance(node, ast.Assign) and self._makes_model(node.value)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        values = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
        return any(
            self._makes_model(value) or (isinstance(value, ast.Name) and value.id in models)
            for value in values
        )

    def _makes_model(self, value: ast.expr | None) -> bool:
        """`Model(...)`, also `Model(...).to(device)`."""
        while isinstance(value, ast.Call):
            if self._is_model(value.func):
                return True
            value = value.func.value if isinstance(value.func, ast.Attribute) else None
        return False

    def _is_model(self, name: ast.expr) -> bool:
        value: object = self._module
        for part in ast.unparse(name).split("."):
            value = getattr(value, part, None)
        return isinstance(value, type) and issubclass(value, nn.Module)
