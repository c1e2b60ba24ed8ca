"""JSON-RPC 2.0 over the client: one call is one POST, recorded under its method."""

from __future__ import annotations

import itertools
from typing import Any


class JsonRPCError(Exception):
    """The server responded with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None, http_status: int | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.data = data
        #: The HTTP status of the response.
        self.http_status = http_status


class JsonRPCProtocolError(Exception):
    """The response is not a JSON-RPC 2.0 response to the request."""


class JsonRPCClient:
    """Calls methods at one URL: ``rpc = JsonRPCClient(client, "/rpc")``, then
    ``await rpc.call("sum", [1, 2])``; in a plain ``def``, ``rpc.call_blocking("sum", [1, 2])``."""

    def __init__(self, client: Any, url: str, *, headers: dict[str, str] | None = None, timeout: float | None = None) -> None:
        self._client = client
        self._url = url
        self._headers = headers
        self._timeout = timeout
        self._ids = itertools.count(1)

    async def call(self, method: str, params: Any = None, *, headers: dict[str, str] | None = None, request_id: Any = None) -> Any:
        """Returns the result of ``method``; raises :class:`JsonRPCError` if the server responds
        with an error. ``headers`` are added to those of the client."""
        body = self._request_body(method, params, request_id)
        return result_of(body, await self._post(body, headers))

    def call_blocking(self, method: str, params: Any = None, *, headers: dict[str, str] | None = None, request_id: Any = None) -> Any:
        """:meth:`call` for plain functions."""
        body = self._request_body(method, params, request_id)
        return result_of(body, self._post(body, headers))

    def _post(self, body: dict[str, Any], headers: dict[str, str] | None) -> Any:
        merged = {**(self._headers or {}), **(headers or {})} or None
        name = f"JSON-RPC {body['method']}"
        return self._client.post(self._url, json=body, name=name, headers=merged, timeout=self._timeout)

    def _request_body(self, method: str, params: Any, request_id: Any) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "method": method, "id": next(self._ids) if request_id is None else request_id}
        if params is not None:
            body["params"] = params
        return body


def result_of(body: dict[str, Any], response: Any) -> Any:
    """Returns the result in the response to the request ``body``."""
    try:
        content = response.json()
    except ValueError as error:
        raise JsonRPCProtocolError(f"status {response.status_code}: {error}") from None
    if not isinstance(content, dict) or content.get("jsonrpc") != "2.0" or ("result" in content) == ("error" in content):
        raise JsonRPCProtocolError("the response is not a JSON-RPC 2.0 response")
    if "error" in content:
        failure = content["error"]
        if not isinstance(failure, dict) or "code" not in failure:
            raise JsonRPCProtocolError("the error in the response has no code")
        raise JsonRPCError(failure["code"], str(failure.get("message", "")), failure.get("data"), response.status_code)
    if content.get("id") != body["id"]:
        raise JsonRPCProtocolError(f"the response is for id {content.get('id')!r}, not {body['id']!r}")
    return content["result"]
