"""The HTTP side of the process: health, metrics, read-only pages. Only here are starlette and uvicorn imported."""
