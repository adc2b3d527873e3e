# JupyterHub with DockerSpawner: each notebook server runs in a grant that counts against its user's limit. The Hub's user is
# root or in the manager's group. The names of Hub and host are the same.
import hashlib
import re
import subprocess

from docker.types import DeviceRequest


def vcuda(*arguments):
    done = subprocess.run(["vcuda", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        # The Hub shows it to the user: the limit, what the user has, what was asked for.
        raise RuntimeError(done.stderr.strip())
    return done.stdout


def grant_of(spawner):
    # Other users and other named servers have other grants, also where only signs that no name may have tell them apart.
    of_server = hashlib.sha256(f"{spawner.user.name}/{spawner.name}".encode()).hexdigest()
    return "hub-" + re.sub("[^A-Za-z0-9]", "", spawner.user.name)[:20] + "-" + of_server[:12]


def before_start(spawner):
    name = grant_of(spawner)
    vcuda("grant", "create", name, "--user", spawner.user.name, "--memory", "4GiB", "--cores", "20")
    device = DeviceRequest(driver="cdi", device_ids=[f"vcuda.io/grant={name}"])
    spawner.extra_host_config = {**spawner.extra_host_config, "device_requests": [device]}


def after_stop(spawner):
    vcuda("grant", "release", grant_of(spawner), "--force")


c = get_config()  # noqa: F821
c.JupyterHub.spawner_class = "dockerspawner.DockerSpawner"
c.DockerSpawner.pre_spawn_hook = before_start
c.DockerSpawner.post_stop_hook = after_stop
