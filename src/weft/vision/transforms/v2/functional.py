"""Transforms as functions for images, videos, masks, boxes, points, and Pillow images.

``resize`` and similar functions dispatch on the type of their input; ``resize_image``,
``resize_bounding_boxes`` and so on are what they do to plain tensors of one kind.
"""

from weft.vision.transforms.v2._functions import *  # noqa: F403
from weft.vision.transforms.v2._kernels import *  # noqa: F403
