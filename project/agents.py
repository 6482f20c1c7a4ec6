"""The demo's agents, registered by name for the API and `manage.py ask`."""

from __future__ import annotations

from convmem import Agent, register_agent
from project.tools import calculate, current_time

# Built at import: the alias of the model and the memory are looked up at first use.
assistant = Agent(
    llm="default",
    memory={"window": 40},
    tools=[current_time, calculate],
    instructions="You are a helpful assistant. Use the tools for times and for sums.",
)
register_agent("assistant", assistant)
