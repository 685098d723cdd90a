"""A rank of torch_device_faults_test.py: trains on the first GPU of tests/emulated_torch.

    torch_device_rank.py MODE ORDER

killed   rank 1 is killed in step 5. The others print the error that they get, and the seconds since
         rank 1 was there last
fault    the program's own work fails on the GPU after synchronize(): prints the error of check(),
         and of the end of `with`
ctrl_c   waits for a rank that never submits, until a signal comes
"""

import ctypes
import os
import signal
import sys
import time

import emulated_torch
import torch

import lmdbio.torch

GPU = torch.device("emulated:0")
RANK = int(os.environ["RANK"])


def killed(model, order):
    seen = time.monotonic()
    try:
        with lmdbio.torch.GradientSync(model, "env", device_order=order,
                                       device_buffer_bytes=1 << 20) as gradients:
            for step in range(20):
                if step == 5 and RANK == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                model.zero_grad()
                model(torch.ones(1, 3).to(GPU)).sum().backward()
                gradients.synchronize()
                gradients.check()
                seen = time.monotonic()
    except lmdbio.PeerFailedError as error:
        print(f"{time.monotonic() - seen:.3f} {error}", flush=True)
    print("a copy:", torch.ones(3).to(GPU).tolist(), flush=True)


def fault(model, order):
    driver = emulated_torch.driver_function
    try:
        with lmdbio.torch.GradientSync(model, "env", device_order=order,
                                       device_buffer_bytes=1 << 20) as gradients:
            model(torch.ones(1, 3).to(GPU)).sum().backward()
            gradients.synchronize()
            # The program copies from an address where there is nothing.
            driver("cuMemcpyDtoDAsync", ctypes.c_uint64(model.weight.data_ptr()),
                   ctypes.c_uint64(12345), ctypes.c_size_t(4), None)
            while driver("cuStreamQuery", None) == 600:
                pass
            if os.environ["WITH_CHECK"] == "1":
                gradients.check()
    except lmdbio.LmdbioError as error:
        print(type(error).__name__, error, flush=True)
    print("the gradient:", model.weight.grad, flush=True)


def ctrl_c(model, order):
    with lmdbio.torch.GradientSync(model, "env", device_order=order,
                                   device_buffer_bytes=1 << 20) as gradients:
        model(torch.ones(1, 3).to(GPU)).sum().backward()
        print("waits", flush=True)
        if RANK == 1:
            time.sleep(60)
        try:
            gradients.synchronize()
        except KeyboardInterrupt:
            print("was interrupted", flush=True)
            os._exit(0)


if __name__ == "__main__":
    {"killed": killed, "fault": fault, "ctrl_c": ctrl_c}[sys.argv[1]](
        torch.nn.Linear(3, 1, bias=False).to(GPU), sys.argv[2])
