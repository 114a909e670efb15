# SPDX-License-Identifier: Apache-2.0
"""`headrace run`: real ranks, their environment and output, and how jobs end."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import STARTED, running_with, wait_for

LONG = 120.0


def launch(binary: Path, *words: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [str(binary), "run", *words],
        capture_output=True,
        timeout=LONG,
        stdin=subprocess.DEVNULL,
        **options,  # type: ignore[call-overload]
    )


def python(script: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(script)]


@pytest.fixture
def begin(headrace_binary: Path) -> Iterator[object]:
    """Start a launcher that the test ends."""

    def start(*words: str, **options: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [str(headrace_binary), "run", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            **options,  # type: ignore[call-overload]
        )
        STARTED.append(process)
        return process

    yield start


def none_left(mark: str) -> None:
    wait_for(f"the end of all processes with {mark}", lambda: not running_with(mark))


def read_ready(process: subprocess.Popen[str], lines: int) -> list[str]:
    """Lines of standard output, one of each rank."""
    assert process.stdout is not None
    return [process.stdout.readline() for _ in range(lines)]


ALL = """
    import json, os, sys
    names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"]
    for prefix in ("HOROVOD_", "HEADRACE_"):
        names += [prefix + n for n in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK",
                                       "CROSS_SIZE", "HOSTNAME", "START_TIMEOUT")]
    names += ["HEADRACE_STORE", "HEADRACE_JOB", "HEADRACE_SECRET_FILE", "MINE"]
    facts = {name: os.environ.get(name) for name in names}
    facts["mode"] = oct(os.stat(facts["HEADRACE_SECRET_FILE"]).st_mode)
    facts["folder_mode"] = oct(os.stat(os.path.dirname(facts["HEADRACE_SECRET_FILE"])).st_mode)
    facts["group"] = os.getpgid(0) == os.getpid()
    facts["cwd"] = os.getcwd()
    print(json.dumps(facts))
"""


def test_a_rank_knows_its_place_and_its_job(headrace_binary: Path, tmp_path: Path) -> None:
    done = launch(
        headrace_binary, "-H", "localhost:2,127.0.0.1:1", *python(ALL),
        env={**os.environ, "MINE": "ours"}, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    facts = {}
    for line in done.stdout.decode().splitlines():
        rank, text = re.fullmatch(r"\[(\d)\]<stdout>:(.*)", line).groups()  # type: ignore[union-attr]
        facts[int(rank)] = json.loads(text)
    assert sorted(facts) == [0, 1, 2]
    for rank, own in facts.items():
        assert own["RANK"] == own["HOROVOD_RANK"] == own["HEADRACE_RANK"] == str(rank)
        assert own["WORLD_SIZE"] == own["HOROVOD_SIZE"] == "3"
        assert own["MINE"] == "ours"
        assert own["mode"].endswith("600")
        assert own["folder_mode"].endswith("700")
        assert own["group"]
        assert own["cwd"] == str(tmp_path)
        assert own["MASTER_ADDR"] == "127.0.0.1"
        assert own["HEADRACE_STORE"].startswith("127.0.0.1:")
        assert own["HOROVOD_START_TIMEOUT"] == "30"
        assert not Path(own["HEADRACE_SECRET_FILE"]).exists(), "the private folder stays behind"
    same = ["MASTER_PORT", "HEADRACE_STORE", "HEADRACE_JOB"]
    assert all(facts[0][name] == facts[2][name] for name in same)
    assert [facts[r]["HOROVOD_LOCAL_RANK"] for r in range(3)] == ["0", "1", "0"]
    assert [facts[r]["HOROVOD_LOCAL_SIZE"] for r in range(3)] == ["2", "2", "1"]
    assert [facts[r]["HOROVOD_CROSS_RANK"] for r in range(3)] == ["0", "0", "1"]
    assert [facts[r]["HOROVOD_CROSS_SIZE"] for r in range(3)] == ["2", "1", "2"]
    assert [facts[r]["HOROVOD_HOSTNAME"] for r in range(3)] == [
        "localhost",
        "localhost",
        "127.0.0.1",
    ]


def test_cores_are_divided_unless_the_user_has_done_so(headrace_binary: Path) -> None:
    script = python("import os; print(len(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS'])")
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    cores = len(os.sched_getaffinity(0))
    done = launch(headrace_binary, "-np", "1", "--cpus-per-rank", "1", *script, env=environment)
    assert done.stdout == b"[0]<stdout>:1 1\n"
    environment["OMP_NUM_THREADS"] = "7"
    done = launch(headrace_binary, "-np", str(cores + 1), *script, env=environment)
    assert done.stdout.count(f":{cores} 7\n".encode()) == cores + 1, done.stdout
    done = launch(headrace_binary, "-np", "2", "--cpus-per-rank", str(cores), *script)
    assert done.returncode == 2
    assert f"need {2 * cores} cores" in done.stderr.decode()


def test_a_rank_that_fails_ends_the_others(headrace_binary: Path) -> None:
    done = launch(
        headrace_binary, "-np", "3",
        "sh", "-c", "[ $RANK = 1 ] && { for i in $(seq 30); do echo line $i >&2; done; exit 3; }; "
        "exec sleep 1000",
    )  # fmt: skip
    assert done.returncode == 1
    text = done.stderr.decode()
    at = text.index("Horovod detected that one or more processes exited with non-zero status")
    message = text[at:].splitlines()
    assert "rank 1 on localhost" in message[0]
    assert "exit code 3" in message[0]
    assert "2 others were stopped" in message[0]
    assert message[1:3] == ["Process name: 1", "Exit code: 3"]
    assert [line.strip() for line in message[4:]] == [f"line {i}" for i in range(11, 31)]


def test_the_traceback_of_the_rank_that_raised_comes_last(headrace_binary: Path) -> None:
    done = launch(
        headrace_binary, "-np", "2",
        *python("""
            import os, time
            if os.environ["RANK"] == "0":
                raise KeyError("the reason")
            time.sleep(1000)
        """),
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.decode().rstrip().endswith("KeyError: 'the reason'")


def test_the_rank_that_raised_is_blamed_though_others_end_sooner(headrace_binary: Path) -> None:
    """Rank 0 hears of it and fails too; its interpreter is often gone first."""
    script = python(
        """
        import atexit, os, time
        import numpy
        import headrace

        if os.environ["HEADRACE_RANK"] == "1":
            atexit.register(time.sleep, 0.5)  # runs after what init() registers
        headrace.init()
        for i in range(3):
            headrace.allreduce(numpy.ones(4, numpy.float32), name=f"a{i}")
            if i == 1 and headrace.rank() == 1:
                raise ValueError("bad batch")
        """
    )
    done = launch(headrace_binary, "-np", "2", *script)
    assert done.returncode != 0
    text = done.stderr.decode()
    assert "rank 1 on localhost" in text.split("was the first")[0].splitlines()[-1]
    assert "ValueError: bad batch" in text.split("Last lines of rank 1 on stderr:")[1]


def test_a_rank_that_left_early_is_named_when_another_fails(headrace_binary: Path) -> None:
    done = launch(headrace_binary, "-np", "2", "--start-timeout", "2", *python("""
        import os, sys
        from headrace import _native
        if os.environ["RANK"] == "1":
            sys.exit(0)
        _native.comm.join()
    """))  # fmt: skip
    assert done.returncode == 1
    assert "rank 0 on" in done.stderr.decode()
    assert "with exit code 0, ended: rank 1\n" in done.stderr.decode()


def test_a_killed_rank_is_named_with_its_signal(headrace_binary: Path) -> None:
    done = launch(
        headrace_binary, "-np", "2", "sh", "-c", "[ $RANK = 0 ] && kill -9 $$; exec sleep 1000"
    )
    assert done.returncode == 1
    assert b"rank 0 on localhost" in done.stderr
    assert b"SIGKILL" in done.stderr
    assert b"Exit code: -9" in done.stderr


def test_an_early_good_end_of_one_rank_ends_nobody(headrace_binary: Path) -> None:
    done = launch(
        headrace_binary, "-np", "2", "sh", "-c", "[ $RANK = 0 ] && exit 0; sleep 0.3; echo after"
    )
    assert done.returncode == 0
    assert done.stdout == b"[1]<stdout>:after\n"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_launcher_ends_even_stopped_ranks(begin, how: int) -> None:  # type: ignore[no-untyped-def]
    mark = f"MARK=interrupt-{os.getpid()}-{how}"
    process = begin("-np", "2", *python("""
        import os, signal, subprocess
        child = subprocess.Popen(["sleep", "1000"])
        print("ready", flush=True)
        if os.environ["RANK"] == "1":
            os.kill(0, signal.SIGSTOP)
        child.wait()
    """), env={**os.environ, "MARK": mark.split("=")[1]})  # fmt: skip
    read_ready(process, 2)
    process.send_signal(how)
    out, err = process.communicate(timeout=LONG)
    assert process.returncode == 130, (out, err)
    none_left(mark)


def test_a_killed_launcher_leaves_nobody_behind(begin) -> None:  # type: ignore[no-untyped-def]
    mark = f"MARK=killed-{os.getpid()}"
    process = begin("-np", "2", *python("""
        import os, signal, subprocess
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
        child = subprocess.Popen(["sleep", "1000"])
        print(os.environ["HEADRACE_SECRET_FILE"], flush=True)
        child.wait()
    """), env={**os.environ, "MARK": mark.split("=")[1]})  # fmt: skip
    secret = Path(read_ready(process, 2)[0].split(":", 1)[1].strip())
    assert secret.exists()
    process.kill()
    process.wait(LONG)
    none_left(mark)
    wait_for("the private folder to go", lambda: not secret.parent.exists())


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["-H", "192.0.2.1:1"], id="no token"),
        pytest.param(
            ["-H", "192.0.2.1:1", "--start-timeout", "1", "--agent-token-file", "token"],
            id="no agent",
        ),
    ],
)
def test_a_job_that_cannot_be_prepared_leaves_no_folder(
    headrace_binary: Path, tmp_path: Path, words: list[str]
) -> None:
    private = tmp_path / "private"
    private.mkdir()
    (tmp_path / "token").touch(0o600)
    (tmp_path / "token").write_bytes(os.urandom(32))
    environment = {k: v for k, v in os.environ.items() if k != "HEADRACE_AGENT_TOKEN_FILE"}
    done = launch(
        headrace_binary, *words, "true", cwd=tmp_path,
        env={**environment, "TMPDIR": str(private)},
    )  # fmt: skip
    assert done.returncode != 0
    assert "agent" in done.stderr.decode()
    assert not list(private.iterdir())


def test_an_interrupt_counts_while_hosts_are_looked_for(begin, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    private = tmp_path / "private"
    private.mkdir()
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_bytes(os.urandom(32))
    process = begin(
        "-H", "192.0.2.1:1", "--start-timeout", "100000", "--agent-token-file", str(token), "true",
        env={**os.environ, "TMPDIR": str(private)},
    )  # fmt: skip
    wait_for("the private folder", lambda: list(private.iterdir()))
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LONG)
    assert process.returncode == 130, err
    assert "interrupted" in err
    assert not list(private.iterdir())


def test_what_a_good_rank_leaves_running_is_ended(headrace_binary: Path) -> None:
    mark = f"MARK=leftover-{os.getpid()}"
    done = launch(
        headrace_binary, "-np", "1",
        *python("import subprocess; subprocess.Popen(['sleep', '1000'], start_new_session=True)"),
        env={**os.environ, "MARK": mark.split("=")[1]},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    none_left(mark)


def test_sixty_four_ranks_start(headrace_binary: Path) -> None:
    done = launch(headrace_binary, "-np", "64", "sh", "-c", "echo $RANK of $WORLD_SIZE")
    assert done.returncode == 0, done.stderr
    expected = {f"[{r}]<stdout>:{r} of 64" for r in range(64)}
    assert set(done.stdout.decode().splitlines()) == expected


def test_a_program_that_is_not_there_is_a_usage_error(headrace_binary: Path) -> None:
    done = launch(headrace_binary, "-np", "2", "no-such-program")
    assert done.returncode == 2
    assert b'no program "no-such-program"' in done.stderr


@pytest.mark.parametrize("mode", [0o600, 0o700], ids=["not executable", "no first line"])
def test_a_script_that_is_no_program_is_told_of_python(
    headrace_binary: Path, tmp_path: Path, mode: int
) -> None:
    (tmp_path / "s.py").write_text("print(1)\n")
    (tmp_path / "s.py").chmod(mode)
    done = launch(headrace_binary, "-np", "2", "./s.py", cwd=tmp_path)
    assert done.returncode != 0
    assert b"python ./s.py" in done.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["-np", "3", "-H", "localhost:2", "true"], "3 ranks are asked for, and the hosts have 2"),
        (["-np", "2"], "no command is given"),
        (["true"], "say how many ranks with -np"),
        (["-np", "0", "true"], "at least 1"),
        (["-H", "a:x", "true"], '"x" is no number of slots'),
        (["-np", "2", "--fusion-threshold-mb", "-1", "true"], "--fusion-threshold-mb takes"),
        (["-np", "2", "--frobnicate", "true"], "no option --frobnicate"),
        (["-np", "2", "--autotune", "--no-autotune", "true"], "both given"),
        (["-np", "4", "--min-np", "5", "true"], "contradict"),
        (["-np", "2", "--timeline-filename", "/no/such/t.json", "true"], "no folder /no/such"),
        (["-np", "1", "-H", "no-such-host.invalid:1", "true"], "no-such-host.invalid"),
    ],
)
def test_bad_words_are_explained(headrace_binary: Path, words: list[str], text: str) -> None:
    done = launch(headrace_binary, *words)
    assert done.returncode == 2, done.stderr
    assert text in done.stderr.decode()


def test_elastic_flags_are_refused_in_words(headrace_binary: Path) -> None:
    done = launch(headrace_binary, "-np", "2", "--min-np", "1", "true")
    assert done.returncode == 1
    assert b"no elastic jobs yet" in done.stderr


def test_flags_of_other_engines_are_accepted(headrace_binary: Path) -> None:
    done = launch(headrace_binary, "-np", "1", "--gloo", "--disable-cache", "echo", "--gloo")
    assert done.returncode == 0
    assert done.stdout == b"[0]<stdout>:--gloo\n"
    assert done.stderr.count(b"has no effect") == 2


def test_strangers_at_the_stores_port_change_nothing(begin) -> None:  # type: ignore[no-untyped-def]
    process = begin("-np", "2", *python("""
        import itertools, os, sys
        from headrace import _native
        print(os.environ["HEADRACE_STORE"], flush=True)
        store = _native.comm.JobStore.open()
        for cycle in itertools.count():
            # Rank 0 says for both whether there is another cycle.
            if os.environ["RANK"] == "0":
                store.set(f"go/{cycle}", str(os.path.exists(sys.argv[1])).encode())
            if store.get(f"go/{cycle}") == b"True":
                break
            context, place = _native.comm.join()
            assert place.size == 2
            context.world.barrier()
            del context
        print("done")
    """), str(Path(os.environ.get("TMPDIR", "/tmp")) / f"go-{os.getpid()}"))  # fmt: skip
    go = Path(process.args[-1])
    try:
        host, port = read_ready(process, 2)[0].split(":", 1)[1].strip().rsplit(":", 1)
        for words in (b"\0" * 4096, b"GET / HTTP/1.1\r\n\r\n", b"HRWIRE\1\0" + b"x" * 300, b""):
            for _ in range(5):
                with socket.create_connection((host, int(port)), timeout=LONG) as stranger:
                    stranger.sendall(words)
        slow = [socket.create_connection((host, int(port)), timeout=LONG) for _ in range(50)]
        for one in slow:
            one.sendall(b"H")
    finally:
        go.touch()
    out, err = process.communicate(timeout=LONG)
    go.unlink()
    for one in slow:
        one.close()
    assert process.returncode == 0, err
    assert out.count("done") == 2


def test_ranks_that_do_not_come_are_named_with_the_limit(headrace_binary: Path) -> None:
    done = launch(
        headrace_binary, "-np", "3", "--start-timeout", "1",
        *python("""
            import os, time
            from headrace import _native
            if os.environ["RANK"] == "1":
                time.sleep(1000)
            _native.comm.join()
        """),
    )  # fmt: skip
    assert done.returncode == 1
    assert b"1 of 3 ranks did not come within 1 s: 1" in done.stderr


def test_torch_runs_on_the_variables_of_the_launcher(
    headrace_binary: Path, reference_python: Path
) -> None:
    done = launch(
        headrace_binary, "-np", "2", str(reference_python), "-c",
        textwrap.dedent("""
            import torch, torch.distributed as dist
            dist.init_process_group("gloo")
            x = torch.ones(3) * (dist.get_rank() + 1)
            dist.all_reduce(x)
            print(x.tolist(), dist.get_world_size())
            dist.destroy_process_group()
        """),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.decode().splitlines()) == [
        "[0]<stdout>:[3.0, 3.0, 3.0] 2",
        "[1]<stdout>:[3.0, 3.0, 3.0] 2",
    ]


def test_check_build_says_what_works(headrace_binary: Path) -> None:
    done = launch(headrace_binary, "-cb")
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode()
    assert "[X] shared memory" in text
    assert "torch" in text
    parts = json.loads(launch(headrace_binary, "--check-build", "--json").stdout)["parts"]
    assert {"transports", "frameworks", "launchers"} <= {part["group"] for part in parts}


JOIN = """
    import os
    from headrace import _native
    for _ in range(3):
        context, place = _native.comm.join()
        context.world.barrier()
        line = f"{place.rank} {place.size} {place.local_rank} {place.local_size}\\n"
        os.write(1, line.encode())  # mpirun mixes what comes in pieces
        del context
"""


def test_ranks_of_torchrun_find_one_another(
    reference_python: Path, tmp_path: Path, source_root: Path
) -> None:
    script = tmp_path / "join.py"
    script.write_text(textwrap.dedent(JOIN))
    done = subprocess.run(
        [str(reference_python), "-m", "torch.distributed.run", "--standalone",
         "--local-addr", "127.0.0.1", "--nproc-per-node", "2", str(script)],
        capture_output=True, text=True, timeout=LONG,
        env={**os.environ, "PYTHONPATH": str(source_root / "python")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["0 2 0 2"] * 3 + ["1 2 1 2"] * 3


def test_ranks_of_mpirun_find_one_another(tmp_path: Path) -> None:
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        pytest.skip("no mpirun here")
    script = tmp_path / "join.py"
    script.write_text(textwrap.dedent(JOIN))
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(
        [mpirun, "-np", "2", sys.executable, str(script)],
        capture_output=True, text=True, timeout=LONG, env={**os.environ, **root},
    )  # fmt: skip
    if done.returncode != 0 and "slots" in done.stderr:
        pytest.skip("mpirun has no two slots here")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["0 2 0 2"] * 3 + ["1 2 1 2"] * 3


def test_many_cycles_leave_nothing_behind(headrace_binary: Path) -> None:
    done = launch(headrace_binary, "-np", "2", *python("""
        import os, threading
        from headrace import _native
        def held():
            tasks = os.listdir("/proc/self/task")
            return len(os.listdir("/proc/self/fd")), len(tasks)
        for cycle in range(300):
            context, _ = _native.comm.join()
            context.world.barrier()
            del context
            if cycle == 20:
                before = held()
        assert held() == before, (before, held())
    """))  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_threads_of_a_rank_may_share_the_jobs_store(headrace_binary: Path) -> None:
    done = launch(headrace_binary, "-np", "1", *python("""
        from concurrent.futures import ThreadPoolExecutor
        from headrace import _native
        store = _native.comm.JobStore.open()
        with ThreadPoolExecutor(8) as pool:
            waits = [pool.submit(store.get, f"late/{i}") for i in range(4)]
            for _ in range(100):
                for done in [pool.submit(store.set, f"k{i}", b"%d" % i) for i in range(4)]:
                    done.result()
                gets = [pool.submit(store.get, f"k{i}") for i in range(4)]
                assert [one.result() for one in gets] == [b"0", b"1", b"2", b"3"]
            for i in range(4):
                store.set(f"late/{i}", b"x")
            assert [one.result() for one in waits] == [b"x"] * 4
    """))  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_descriptor_that_gave_no_secret_is_not_read_again() -> None:
    read, write = os.pipe()
    os.write(write, b"short")
    os.close(write)
    done = subprocess.run(
        python("""
            import os
            from headrace import _native
            def refused():
                try:
                    _native.comm.join(start_timeout=0.5)
                except Exception as error:
                    return str(error)
            fd = int(os.environ["HEADRACE_SECRET_FD"])
            print(refused())
            other = os.open(os.devnull, os.O_RDONLY)
            os.dup2(other, fd)  # what else the process may open under that number
            print(refused())
            os.fstat(fd)
        """),
        capture_output=True, text=True, timeout=LONG, pass_fds=[read],
        env={**os.environ, "HEADRACE_RANK": "1", "HEADRACE_SIZE": "2", "HEADRACE_LOCAL_RANK": "1",
             "HEADRACE_LOCAL_SIZE": "2", "HEADRACE_CROSS_RANK": "0", "HEADRACE_CROSS_SIZE": "1",
             "HEADRACE_JOB": "job", "HEADRACE_STORE": "127.0.0.1:1",
             "HEADRACE_SECRET_FD": str(read)},
    )  # fmt: skip
    os.close(read)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert "HEADRACE_SECRET_FD" in first
    assert "read once only" in second


def test_a_rank_that_waits_for_rank_zero_in_vain_says_so() -> None:
    done = subprocess.run(
        python("from headrace import _native; _native.comm.join(start_timeout=0.5)"),
        capture_output=True, text=True, timeout=LONG,
        env={**os.environ, "RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
             "MASTER_PORT": "1"},
    )  # fmt: skip
    assert done.returncode != 0
    assert "rank 1 of 2 cannot reach the store of the job, which rank 0 serves" in done.stderr
