"""What can be listened on, and how many connections there are descriptors for."""

import errno
import socket

import pytest
from child import command, fork
from serving.served import stored

from regard.errors import CommandError
from regard.serving.connection import RESERVE, bind, explain, fit_descriptors


def test_a_port_that_is_taken_is_one_sentence():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = fork(command("serve", *stored("ntm"), "--port", port, "--device", "cpu")).wait()
    assert ended.status == 2
    assert ended.stderr == (
        f"regard: --port: {port} on 127.0.0.1 is in use; stop what listens there, or choose another port (0: any free "
        "one)\n"
    )


@pytest.mark.parametrize("host", ["nobody.invalid", "a" * 300, "256.1.1.1", "\ud800"])
def test_a_host_that_is_none_is_one_sentence(host):
    with pytest.raises(CommandError, match="--host: .* is no address or name of this machine; give one that is"):
        bind(host, 0)


def test_an_address_of_another_machine_is_one_sentence():
    with pytest.raises(CommandError, match="--host: 192.0.2.1 is no address of this machine"):
        bind("192.0.2.1", 0)


@pytest.mark.parametrize("number", [errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL, errno.ENETDOWN])
def test_every_reason_names_what_to_do(number):
    message = explain(OSError(number, "no"), "127.0.0.1", 80)
    assert message.startswith(("--port: 80 on 127.0.0.1", "--host: 127.0.0.1"))


def test_every_address_of_a_name_is_bound():
    sockets = bind("localhost", 0)
    assert sockets
    for each in sockets:
        with each:
            assert each.getsockname()[0] in ("127.0.0.1", "::1")
            assert each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)


@pytest.mark.parametrize(
    ("soft", "hard", "expected"),
    [(400, 400, 400 - RESERVE), (100, 100, 50), (64, 1000, 500), (64, 600, 600 - RESERVE), (1000, 1000, 500)],
)
def test_connections_are_as_many_as_there_are_descriptors_for(soft, hard, expected):
    def work():
        import resource

        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        print(fit_descriptors(500))

    assert fork(work).wait().stdout == f"{expected}\n"
