"""Before any test imports jax: enough virtual CPU devices for every mesh, and only the CPU."""

import os

if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count=1152".strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# tests never read or fill the user's own cache; those about the cache name a folder
os.environ["XLA_COST_CACHE"] = "off"
