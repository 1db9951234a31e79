"""How the weights are found: loss, schedule, optimizer, and a loop that resumes exactly."""
