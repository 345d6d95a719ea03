"""A small local server that speaks the Messages API: streaming, tools, caching figures and every kind of fault.

A *brain* is a function from the request's body to a behaviour; behaviours are made by the functions below. It answers
in the wire forms of Google Cloud (the model is in the address) and AWS (binary event frames) too.
"""

import base64
import contextlib
import hashlib
import json
import re
import struct
import threading
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise

CHARS_PER_TOKEN = 4
PLANTED = "sk-ant-api03-planted-KEY_do-not-leak-0123456789"


class Behaviour:
    """``play(handler, body, usage)`` writes the HTTP answer."""

    def __init__(self, play):
        self.play = play


def say(*blocks, stop_reason="end_turn", pause=None, drop_after=None, error_after=None):
    """Streams blocks. ``drop_after``: number of events after which the connection is closed; ``error_after``: an SSE
    error of that kind (count, type) instead; ``pause``: called before each event."""

    def play(handler, body, usage):
        handler.start(200, "text/event-stream")
        for count, (name, data) in enumerate(_events(body, blocks, stop_reason, usage)):
            if drop_after is not None and count >= drop_after:
                handler.close_connection = True
                return
            if error_after is not None and count >= error_after[0]:
                handler.event("error", {"type": "error", "error": {"type": error_after[1], "message": "planted"}})
                return
            if pause is not None:
                pause()
            handler.event(name, data)

    return Behaviour(play)


def text(words):
    return {"type": "text", "text": words}


def thinking(words):
    return {"type": "thinking", "thinking": words, "signature": "c2lnbmF0dXJl"}


def tool(name, /, **given):
    made = hashlib.sha256(json.dumps([name, given], sort_keys=True).encode()).hexdigest()[:12]
    return {"type": "tool_use", "id": f"toolu_{made}", "name": name, "input": given}


def call(name, /, **given):
    """One tool call, with a word before it."""
    return say(text(f"I call {name}."), tool(name, **given), stop_reason="tool_use")


def fail(status, kind="api_error", message="planted", headers=()):
    def play(handler, body, usage):
        handler.start(status, "application/json", dict(headers))
        handler.wfile.write(json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode())

    return Behaviour(play)


def raw(data, content_type="text/event-stream", status=200):
    """Bytes as they are: a stream that is not JSON, a page of HTML."""

    def play(handler, body, usage):
        handler.start(status, content_type)
        handler.wfile.write(data)

    return Behaviour(play)


def hang_up():
    def play(handler, body, usage):
        handler.close_connection = True

    return Behaviour(play)


def _events(body, blocks, stop_reason, usage):
    output = usage.pop("output_tokens")
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "content": [],
               "stop_reason": None, "stop_sequence": None, "usage": {**usage, "output_tokens": 1}}
    yield "message_start", {"type": "message_start", "message": message}
    for index, block in enumerate(blocks):
        empty = {**block, **{k: "" for k in ("text", "thinking", "signature") if k in block}}
        if block["type"] == "tool_use":
            empty["input"] = {}
        yield "content_block_start", {"type": "content_block_start", "index": index, "content_block": empty}
        for delta in _deltas(block):
            yield "content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta}
        yield "content_block_stop", {"type": "content_block_stop", "index": index}
    yield "message_delta", {"type": "message_delta", "delta": {"stop_reason": stop_reason, "stop_sequence": None},
                            "usage": {"output_tokens": output}}
    yield "message_stop", {"type": "message_stop"}


def _deltas(block):
    if block["type"] == "tool_use":
        whole = json.dumps(block["input"])
        return [{"type": "input_json_delta", "partial_json": whole[i:i + 400]} for i in range(0, len(whole), 400)]
    if block["type"] == "thinking":
        return [{"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]}]
    return [{"type": "text_delta", "text": block["text"][i:i + 40]} for i in range(0, len(block["text"]), 40)]


class ClaudeServer:
    """``requests`` holds the bodies in order, ``headers`` theirs, ``usages`` what was billed."""

    def __init__(self, brain, key=None):
        self.brain, self.key = brain, key
        self.requests, self.headers, self.usages = [], [], []
        self._cached, self._mutex = set(), threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                self.aws = re.match(r"/model/([^/]+)/invoke", self.path)
                google = re.search(r"/models/([^/:]+):", self.path)
                if self.aws or google:  # there the model is part of the address
                    body["model"] = (self.aws or google)[1]
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    server.answer(self, body)
                self.close_connection = True

            def start(self, status, content_type, headers=()):
                self.send_response(status)
                for name, value in {"content-type": content_type, "connection": "close", **dict(headers)}.items():
                    self.send_header(name, value)
                self.end_headers()

            def event(self, name, data):
                sse = f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()
                self.wfile.write(aws_frame(data) if self.aws else sse)
                self.wfile.flush()

            def log_message(self, *args):
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def answer(self, handler, body):
        with self._mutex:
            self.requests.append(body)
            self.headers.append(dict(handler.headers))
            refused = self._refusal(handler, body)
            behaviour = refused or self.brain(body)
            usage = self._usage(body, behaviour)
            self.usages.append(dict(usage))
        behaviour.play(handler, body, usage)

    def _refusal(self, handler, body):
        sent = (handler.headers.get("x-api-key"), handler.headers.get("authorization"))  # older and newer SDKs
        known = self.key in sent or f"Bearer {self.key}" in sent or "/model" in handler.path  # clouds sign in their way
        if self.key is not None and not known:
            return fail(401, "authentication_error", "invalid x-api-key")
        if body.get("tool_choice", {}).get("type") in ("any", "tool"):
            return fail(400, "invalid_request_error", "forced tool use is not supported by this model")
        roles = [m["role"] for m in body["messages"]]
        if roles[0] != "user" or roles[-1] != "user" or any(a == b for a, b in pairwise(roles)):
            return fail(400, "invalid_request_error", "roles must alternate and end with user")
        return self._unanswered(body)

    @staticmethod
    def _unanswered(body):
        """Every tool_use needs its tool_result in the next message, as the real service demands."""
        for before, after in pairwise(body["messages"]):
            asked = {b["id"] for b in before["content"] if b["type"] == "tool_use"}
            given = {b["tool_use_id"] for b in after["content"] if b["type"] == "tool_result"}
            if asked != given:
                return fail(400, "invalid_request_error", f"tool_use ids without tool_result: {sorted(asked ^ given)}")
        return None

    def _usage(self, body, behaviour):
        """Reads and writes of a prompt cache that holds every marked prefix seen, in tokens of four bytes; each model,
        effort and kind of thinking has one of its own."""
        blocks = [*body.get("tools", ()), *body["system"], *(b for m in body["messages"] for b in m["content"])]
        kind = json.dumps([body["model"], body.get("thinking"), body.get("output_config")], sort_keys=True)
        read, length, marked, digest, new = 0, 0, 0, hashlib.sha256(kind.encode()), []
        for block in blocks:
            plain = json.dumps({k: v for k, v in block.items() if k != "cache_control"}).encode()
            digest.update(plain)
            length += len(plain)
            if digest.hexdigest() in self._cached:
                read = length
            if "cache_control" in block:
                marked = length
                new.append(digest.hexdigest())
        self._cached.update(new)
        write = max(0, marked - read)
        tokens = [n // CHARS_PER_TOKEN for n in (length - read - write, read, write)]
        return {"input_tokens": tokens[0], "cache_read_input_tokens": tokens[1],
                "cache_creation_input_tokens": tokens[2], "output_tokens": 300}

    def close(self):
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


def aws_frame(data):
    """One event as Amazon's event stream frames it: lengths, headers, payload, each part with its checksum."""
    payload = json.dumps({"bytes": base64.b64encode(json.dumps(data).encode()).decode()}).encode()
    given = {":event-type": "chunk", ":content-type": "application/json", ":message-type": "event"}
    headers = b"".join(struct.pack("!B", len(k)) + k.encode() + struct.pack("!BH", 7, len(v)) + v.encode()
                       for k, v in given.items())
    lengths = struct.pack("!II", len(headers) + len(payload) + 16, len(headers))
    head = lengths + struct.pack("!I", zlib.crc32(lengths)) + headers + payload
    return head + struct.pack("!I", zlib.crc32(head))


def role_of(body):
    """Whose conversation a request belongs to, read from its opening."""
    opening = body["messages"][0]["content"][1]["text"]
    return re.match(r"You are the (\w+)\.", opening)[1]


class Script:
    """A brain: behaviours by role, in order; the last one of a role is repeated. A behaviour may be a function."""

    def __init__(self, **roles):
        self.roles = {name: list(items) if isinstance(items, list) else [items] for name, items in roles.items()}

    def __call__(self, body):
        items = self.roles[role_of(body)]
        item = items.pop(0) if len(items) > 1 else items[0]
        return item if isinstance(item, Behaviour) else item(body)
