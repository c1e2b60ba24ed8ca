"""Measures one command: requests as the server counts them, CPU and memory of its whole process tree.

Trusts no generator's own report. The steady part begins one second after the first request and ends half a second before the last,
so that start-up and shut-down do not count.
"""

import http.client
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Nginx:
    """One nginx worker on its own core, which counts what it serves."""

    def __init__(self, folder, core, tls=False):
        self.port = free_port()
        config = (Path(__file__).parent / "nginx.conf.in").read_text()
        if tls:
            self.tls_port = free_port()
            config = config.replace("# @TLS@", tls_lines(folder, self.tls_port))
        path = Path(folder) / "nginx.conf"
        path.write_text(config.replace("@DIR@", str(folder)).replace("@PORT@", str(self.port)))
        nginx = "/usr/sbin/nginx" if os.path.exists("/usr/sbin/nginx") else "nginx"
        subprocess.run(["taskset", "-c", str(core), nginx, "-e", f"{folder}/error.log", "-c", str(path)], check=True)
        self.pid_file = Path(folder) / "nginx.pid"
        self.polls = 0
        self.connection = None
        for _ in range(50):
            try:
                self.served()
                return
            except OSError:
                time.sleep(0.1)
        raise SystemExit(f"nginx did not come up: see {folder}/error.log")

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/"

    @property
    def tls_url(self):
        return f"https://127.0.0.1:{self.tls_port}/"

    def served(self):
        """Requests served so far, without those of this method."""
        if self.connection is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            self.connection.request("GET", "/served")
            total = int(self.connection.getresponse().read().split()[9])
        except OSError:
            self.connection = None
            raise
        self.polls += 1
        return total - self.polls

    def stop(self):
        os.kill(int(self.pid_file.read_text()), signal.SIGTERM)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def tls_lines(folder, port):
    """Lines of a server that also speaks TLS, with a certificate that it signs itself."""
    key, certificate = f"{folder}/key.pem", f"{folder}/certificate.pem"
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"]
    files = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate]
    subprocess.run([*make, *files], check=True, capture_output=True)
    return f"listen 127.0.0.1:{port} ssl backlog=4096; ssl_certificate {certificate}; ssl_certificate_key {key};"


def tree(pid):
    """`pid` and all its descendants that are alive."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid] + [p for child in children for p in tree(int(child))]


def usage(pid):
    """(CPU seconds, resident bytes) of a process tree."""
    cpu = rss = 0
    for p in tree(pid):
        try:
            fields = Path(f"/proc/{p}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        cpu += int(fields[11]) + int(fields[12])
        rss += int(fields[21]) * PAGE
    return cpu / TICKS, rss


def measure(command, server, core, seconds):
    """Runs `command` pinned to `core`; returns its figures, or a reason under `failed`."""
    before = server.served()
    child_before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(
        ["taskset", "-c", str(core), *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    samples, peak = [], 0
    deadline = time.monotonic() + seconds + 30
    while process.poll() is None:
        cpu, rss = usage(process.pid)
        samples.append((time.monotonic(), server.served() - before, cpu))
        peak = max(peak, rss)
        if time.monotonic() > deadline:
            process.kill()
            return {"failed": f"still running 30 s after its {seconds} s were over"}
        time.sleep(0.1)
    output = process.stdout.read()
    child = resource.getrusage(resource.RUSAGE_CHILDREN)
    requests = server.served() - before
    if requests == 0:
        return {"failed": f"sent nothing, exit code {process.returncode}: {output.strip()[-300:]}"}
    cpu = child.ru_utime + child.ru_stime - child_before.ru_utime - child_before.ru_stime
    result = {"requests": requests, "exit_code": process.returncode, "cpu_us_whole": cpu / requests * 1e6, "peak_rss_mb": peak / 1e6}
    return result | steady(samples, requests)


def steady(samples, requests):
    begin = next((t for t, n, _ in samples if n > 0), None)
    end = next((t for t, n, _ in samples if n >= requests), samples[-1][0])
    inside = [s for s in samples if begin is not None and begin + 1.0 <= s[0] <= end - 0.5]
    # Within a span in which the process was charged for nothing there is nothing to see.
    if len(inside) < 2 or inside[-1][1] == inside[0][1] or inside[-1][2] == inside[0][2]:
        return {}
    (t0, n0, c0), (t1, n1, c1) = inside[0], inside[-1]
    return {"rate": (n1 - n0) / (t1 - t0), "cpu_us": (c1 - c0) / (n1 - n0) * 1e6}


def idle_lag(core, rate=10_000, seconds=1.5, slice_s=0.0006):
    """The schedule lag (ms, 99th percentile) of a thread that walks an open schedule in slices and does nothing at each start.

    It is what the machine itself adds: the least lag that any generator on this core could have just then. Counted over starts, as a
    generator counts it: one stall of 20 ms is one late wake-up, but 200 late starts."""
    code = (
        "import time\nlate, begin = [], time.perf_counter()\n"
        f"while len(late) < {int(rate * seconds)}:\n"
        f"    time.sleep({slice_s}); now = time.perf_counter() - begin\n"
        f"    late += [now - n / {rate} for n in range(len(late), int(now * {rate}) + 1)]\n"
        "print(sorted(late)[len(late) * 99 // 100] * 1000)"
    )
    return float(subprocess.run(["taskset", "-c", str(core), sys.executable, "-c", code], check=True, capture_output=True).stdout)
