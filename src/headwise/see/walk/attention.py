"""The steps of an attention: Q, K, V; heads split; scores, mask, softmax; product with V; heads merged."""

from __future__ import annotations

from headwise.doctor.graph import Op, Value
from headwise.doctor.sites import SOFTMAXES, Site
from headwise.see.walk import words
from headwise.see.walk.layers import output_projection
from headwise.see.walk.operands import Operand, Operands
from headwise.see.walk.ways import (
    backward,
    end_of,
    factor_of,
    followed,
    is_fold,
    tail,
)


class Attention(Operands):
    """Claims the operations of one attention, in the order in which a reader would tell them."""

    def claim(self) -> None:
        """Claim all of it."""
        operands = self._made()
        self._scores(operands)
        self._masks()
        self._softmax()
        self._mix()
        self._merge()

    def _scores(self, operands: list[Operand]) -> None:
        own: set[Op] = set()
        results: list[Value] = []
        for site in self.sites:
            masks = {op for op, _ in site.masks}
            path: list[Op] = []
            for op in site.path:
                if op in masks or not (op.moves or factor_of(op) is not None):
                    break
                path.append(op)
            while path and path[-1].moves and path[-1].name == "_to_copy":
                path.pop()
            own |= {site.product, *path, *(op for op in site.path if factor_of(op) is not None)}
            results.append(self._nicest([site.product.out, *(o for op in path for o in op.outputs)]))
        for operand in operands[:2]:
            own |= {op for op in operand.ways if factor_of(op) is not None}
        first = self.sites[0]
        told = f"Q K^T {words.scales(self.sites)}"
        if any(op is first.product for op, _ in first.masks):
            told += f" + mask, which {self._hidden(self._full(results[0]))}"
        if first.softmax.name == "_safe_softmax":
            told += ", in the kernel"
        self._step("scores", "scores", own, results, told, first.product)

    def _masks(self) -> None:
        shifts = {op for site in self.sites for op, _ in self._shifts(site)}
        masks = [(o, v) for s in self.sites for o, v in s.masks if o is not s.product and o not in shifts]
        biases = {op for op, v in masks if v.trained or words.is_bias(v)}
        for is_bias in (True, False):
            own = {op for op, _ in masks if (op in biases) == is_bias}
            if not own:
                continue
            last = [
                max((op for op in s.path if op in own), key=lambda op: op.index, default=None)
                for s in self.sites
            ]
            results = [
                self._after(op, site) for op, site in zip(last, self.sites, strict=True) if op is not None
            ]
            shape = self._full(results[0])
            hides = self._hidden(shape)
            if is_bias:
                both = "" if hides == "hides nothing" or own != {op for op, _ in masks} else f", {hides}"
                self._step("bias", "position bias", own, results, f"added to the scores{both}")
            else:
                self._step("mask", "mask", own, results, hides)
        between = {
            op
            for site in self.sites
            for op in site.path
            if op not in self.claims.of and op not in shifts and not is_fold(op)
        }
        if between:
            self._step(
                "other", words.listed(list(between)), between, [max(between, key=lambda o: o.index).out]
            )

    def _hidden(self, shape: tuple[int, ...]) -> str:
        return words.hidden(self.sites, self.probe.is_part, shape, self.probe.whole_masks(self.sites))

    def _shifts(self, site: Site) -> list[tuple[Op, Op]]:
        """Where the largest score is taken off before the softmax, which changes nothing: a part of it."""
        found = [(op, v.op) for op, v in site.masks if op.name.startswith("sub") and v.op is not None]
        return [(op, made) for op, made in found if made.name in {"max", "amax"}]

    def _after(self, op: Op, site: Site) -> Value:
        """The scores after a mask, in the shape that keeps most axes apart."""
        path = [o for o in site.path if o.index >= op.index]
        values = [op.out]
        for each in path[1:]:
            if not is_fold(each):
                break
            values.append(each.out)
        return self._nicest(values)

    def _softmax(self) -> None:
        own: set[Op] = set()
        by_hand = False
        for site in self.sites:
            own.add(site.softmax)
            for op, largest in self._shifts(site):
                own |= {op, largest}
            if site.softmax.name not in SOFTMAXES:
                by_hand = True
                ways, _ = backward([site.weights_value], lambda op: False, {site.scores_value})
                own |= set(ways)
        told = words.softmax_axes(self.sites) + (" (by hand)" if by_hand else "")
        self._step("softmax", "softmax", own, [s.weights_value for s in self.sites], told)

    def _mix(self) -> None:
        own: set[Op] = set()
        results: list[Value] = []
        for site in self.sites:
            after = [op for op in followed([site.mix.out], is_fold) if self._keeps(op)]
            nice = self._nicest([site.mix.out, *(op.out for op in after)])
            own |= {site.mix, *(op for op in site.after if is_fold(op) or op.name == "native_dropout")}
            own |= {op for op in after if nice.op is not None and op.index <= nice.op.index}
            results.append(nice)
        self._step("mix", "softmax times V", own, results, "product with V", self.sites[0].mix)
        between = {op for site in self.sites for op in site.after if op not in self.claims.of}
        if between:
            draft = self._step(
                "other", words.listed(list(between)), between, [max(between, key=lambda o: o.index).out]
            )
            if draft is not None:
                draft.at = self._place - 2e-4

    def _keeps(self, op: Op) -> bool:
        """Does a move after the product with the values leave the heads apart, in their order?"""
        return self._is_split(op.out) and op.name in {"view", "_unsafe_view"}

    def _merge(self) -> None:
        starts = [site.mix.out for site in self.sites]
        moved = followed(starts, lambda op: is_fold(op) or op.name in {"cat", "stack"})
        output = output_projection(self.layer)
        if output is not None:
            moved = [op for op in moved if op.index < output.index]
        free = [op for op in moved if op not in self.claims.of]
        values = [op.out for op in free if not self._is_split(op.out)]
        if values:
            rank = max(len(v.shape) for v in values)
            last = next(v for v in reversed(values) if len(v.shape) == rank)
            own = {op for op in free if last.op is not None and op.index <= last.op.index}
            self._step("merge", "merge heads", own, [last], words.listed(list(own)))
        if output is not None:
            self._step(
                "output", "output projection", {output, *tail(output)}, [end_of(output)],
                words.weights(output), output,
            )  # fmt: skip
