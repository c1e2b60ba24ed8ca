"""JSON-RPC 2.0 over the client, against a real server."""

from __future__ import annotations

import http.server
import json
import threading

import pytest


class _Rpc(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = {"jsonrpc": "2.0", "id": question["id"]}
        match question["method"]:
            case "sum":
                answer["result"] = sum(question["params"])
            case "null":
                answer["result"] = None
            case "other id":
                answer |= {"result": 1, "id": -1}
            case "both":
                answer |= {"result": 1, "error": {"code": 1}}
            case _:
                answer["error"] = {"code": -32601, "message": "no such method", "data": [1]}
        body = b"<html>" if question["method"] == "html" else json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def rpc_url():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Rpc)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/rpc"
    server.shutdown()


@pytest.mark.parametrize("way", ["stepped", "asyncio", "plain"])
def test_json_rpc_calls_return_results_and_raise_errors(run, rpc_url, way):
    code = f"""
        class Shop(VUser):
            async def on_start(self, client):
                self.rpc = JsonRPCClient(client, "{rpc_url}")

            @task
            async def go(self, client):
                assert await self.rpc.call("sum", [1, 2]) == 3
                assert await self.rpc.call("null") is None
                for method, kind in (("nope", JsonRPCError), ("html", JsonRPCProtocolError), ("both", JsonRPCProtocolError),
                                     ("other id", JsonRPCProtocolError)):
                    try:
                        await self.rpc.call(method)
                    except kind as error:
                        assert method != "nope" or (error.code, error.data) == (-32601, [1])
                    else:
                        raise AssertionError(method)
        """
    if way == "plain":
        code = code.replace("await ", "").replace("async def", "def").replace(".call(", ".call_blocking(")
    ended = run(code, "--mode", "asyncio" if way == "asyncio" else "stepped")
    assert ended.metric("go")["errors"] == 0, ended.messages()
    assert ended.metric("JSON-RPC sum")["requests"] == 5 and ended.metric("JSON-RPC nope")["requests"] == 5
