"""JSON-RPC 2.0 over the client: one call is one POST, named by its method."""

from __future__ import annotations

import itertools
from typing import Any


class JsonRPCError(Exception):
    """The server answered with an error."""

    def __init__(self, code: int, message: str, data: Any = None, http_status: int | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.data = data
        #: The status of the answer that carried it.
        self.http_status = http_status


class JsonRPCProtocolError(Exception):
    """The answer is no JSON-RPC 2.0 response to the question."""


class JsonRPCClient:
    """Calls methods at one URL: ``rpc = JsonRPCClient(client, "/rpc")``, then ``await rpc.call("sum", [1, 2])``; in a plain ``def``,
    ``rpc.call_blocking("sum", [1, 2])``."""

    def __init__(self, client: Any, url: str, *, headers: dict[str, str] | None = None, timeout: float | None = None) -> None:
        self._client = client
        self._url = url
        self._headers = headers
        self._timeout = timeout
        self._ids = itertools.count(1)

    async def call(self, method: str, params: Any = None, *, headers: dict[str, str] | None = None, request_id: Any = None) -> Any:
        """The result of ``method``; raises :class:`JsonRPCError` if the server says so. ``headers`` come on top of the client's."""
        question = self._question(method, params, request_id)
        return result_of(question, await self._ask(question, headers))

    def call_blocking(self, method: str, params: Any = None, *, headers: dict[str, str] | None = None, request_id: Any = None) -> Any:
        """The same for plain functions."""
        question = self._question(method, params, request_id)
        return result_of(question, self._ask(question, headers))

    def _ask(self, question: dict[str, Any], headers: dict[str, str] | None) -> Any:
        together = {**(self._headers or {}), **(headers or {})} or None
        name = f"JSON-RPC {question['method']}"
        return self._client.post(self._url, json=question, name=name, headers=together, timeout=self._timeout)

    def _question(self, method: str, params: Any, request_id: Any) -> dict[str, Any]:
        question = {"jsonrpc": "2.0", "method": method, "id": next(self._ids) if request_id is None else request_id}
        if params is not None:
            question["params"] = params
        return question


def result_of(question: dict[str, Any], answer: Any) -> Any:
    """What an answer to ``question`` says."""
    try:
        said = answer.json()
    except ValueError as error:
        raise JsonRPCProtocolError(f"status {answer.status_code}: {error}") from None
    if not isinstance(said, dict) or said.get("jsonrpc") != "2.0" or ("result" in said) == ("error" in said):
        raise JsonRPCProtocolError("the answer is no JSON-RPC 2.0 response")
    if "error" in said:
        told = said["error"]
        if not isinstance(told, dict) or "code" not in told:
            raise JsonRPCProtocolError("the answer's error has no code")
        raise JsonRPCError(told["code"], str(told.get("message", "")), told.get("data"), answer.status_code)
    if said.get("id") != question["id"]:
        raise JsonRPCProtocolError(f"the answer is for id {said.get('id')!r}, not {question['id']!r}")
    return said["result"]
