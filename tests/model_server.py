"""A small server of a SavedModel in Python, for what measures servers: the REST API of TensorFlow Serving, as far as
`:predict` with `instances` goes. It answers one request after the other.

    python -m tests.model_server SAVED_MODEL PORT
"""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def main(folder: str, port: int) -> None:
    """Load a model whose `serving_default` has one input and one output; serve it until the process is ended."""
    import tensorflow as tf

    call = tf.saved_model.load(folder).signatures["serving_default"]
    ((name, spec),) = call.structured_input_signature[1].items()
    one_at_a_time = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:  # as the library calls it
            body = self.rfile.read(int(self.headers["Content-Length"]))
            try:
                inputs = tf.constant(json.loads(body)["instances"], spec.dtype)
                with one_at_a_time:
                    (outputs,) = call(**{name: inputs}).values()
                status, answer = 200, {"predictions": outputs.numpy().tolist()}
            except (KeyError, TypeError, ValueError, tf.errors.OpError) as error:
                status, answer = 400, {"error": str(error)}
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
