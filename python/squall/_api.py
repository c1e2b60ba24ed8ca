"""The public API of Squall scenarios: users, tasks, the client, resources, metrics and errors.

Scenarios import these names from ``squall``, which loads this module when the first is used."""

from squall._blocking import BlockingClient, BlockingCqlStatement, BlockingStream, BlockingWebSocket
from squall._cql import CqlRow, CqlRows
from squall._dsl import VUser, between, probe, resource, scenario, set_up, step, task, tear_down
from squall._errors import CqlError, RequestError, RequestTimeout, ResourcesExhausted, ScenarioError, StatusError, TaskTimeout
from squall._jsonrpc import JsonRPCClient, JsonRPCError, JsonRPCProtocolError
from squall._metrics import emit_metric, metric
from squall._probe import ProbeContext
from squall._resources import Resource
from squall._squall import Client, CqlStatement, Headers, Operation, Response, StreamedAnswer, WebSocket, __version__, sleep
from squall._sse import Event, events, events_blocking
from squall._strategy import ParallelReadyStrategy, SequentialWeightedStrategy, Step, StepSelection, StepStrategy

__all__ = [
    "BlockingClient",
    "BlockingCqlStatement",
    "BlockingStream",
    "BlockingWebSocket",
    "Client",
    "CqlError",
    "CqlRow",
    "CqlRows",
    "CqlStatement",
    "Event",
    "Headers",
    "JsonRPCClient",
    "JsonRPCError",
    "JsonRPCProtocolError",
    "Operation",
    "ParallelReadyStrategy",
    "ProbeContext",
    "RequestError",
    "RequestTimeout",
    "Resource",
    "ResourcesExhausted",
    "Response",
    "ScenarioError",
    "SequentialWeightedStrategy",
    "StatusError",
    "Step",
    "StepSelection",
    "StepStrategy",
    "StreamedAnswer",
    "TaskTimeout",
    "VUser",
    "WebSocket",
    "__version__",
    "between",
    "emit_metric",
    "events",
    "events_blocking",
    "metric",
    "probe",
    "resource",
    "scenario",
    "set_up",
    "sleep",
    "step",
    "task",
    "tear_down",
]
