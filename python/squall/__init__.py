"""Load tests, measured right: scenarios in Python, executed at the speed of Rust."""

from squall._blocking import sleep
from squall._dsl import VUser, between, resource, scenario, set_up, step, task, tear_down
from squall._errors import RequestError, RequestTimeout, ResourcesExhausted, ScenarioError, StatusError, TaskTimeout
from squall._jsonrpc import JsonRPCClient, JsonRPCError, JsonRPCProtocolError
from squall._metrics import emit_metric, metric
from squall._resources import Resource
from squall._squall import Client, Headers, Operation, Response, __version__

__all__ = [
    "Client",
    "Headers",
    "JsonRPCClient",
    "JsonRPCError",
    "JsonRPCProtocolError",
    "Operation",
    "RequestError",
    "RequestTimeout",
    "Resource",
    "ResourcesExhausted",
    "Response",
    "ScenarioError",
    "StatusError",
    "TaskTimeout",
    "VUser",
    "__version__",
    "between",
    "emit_metric",
    "metric",
    "resource",
    "scenario",
    "set_up",
    "sleep",
    "step",
    "task",
    "tear_down",
]
