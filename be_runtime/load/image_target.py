"""Targets of the images of a bundle, registered under names that contain their hashes."""

from __future__ import annotations

from functools import partial

from be_runtime.bundle.carried import Carried, Demand, carried_library
from be_runtime.bundle.mapped_images import Bundle, mapped_bytes
from be_runtime.load.registry import Registry, Target
from be_runtime.xla import jax_port


def register_image_target(name: str, bundle: Bundle, registry: Registry) -> None:
    """Map the image of a target and register its handlers, unless they are.

    Raises
    ------
    LoadError
        The image is damaged, or not for this machine.
    """
    target = bundle.table.targets[name]
    image, library = bundle.table.images[target.image], bundle.library(target.image)
    symbols = {stage: getattr(library, symbol) for stage, symbol in target.stages.items()}

    def carry(wanted: Demand) -> Carried:
        return carried_library(image, mapped_bytes(image, library, name, wanted), target.stages)

    content = f"{target.image}:{target.stages['execute']}"
    registry.add([Target(name, target.platform, content, carry)], {name: partial(jax_port.stage_capsules, symbols)})
