"""The part of oneDNN's C interface that weft calls.

``python -m weft.native.onednn.declarations`` writes it as ``_abi.py``, the form that cffi loads
without a parser. Pointers to array data are integers here: so no conversion is needed.
"""

from __future__ import annotations

from pathlib import Path

CDEF = """
typedef int64_t dnnl_dims_t[12];
typedef struct { int major, minor, patch; const char *hash; unsigned cpu, gpu; } dnnl_version_t;
typedef struct { int arg; void *memory; } dnnl_exec_arg_t;

const dnnl_version_t *dnnl_version(void);
int dnnl_get_effective_cpu_isa(void);
int dnnl_set_primitive_cache_capacity(int capacity);
int dnnl_engine_create(void **engine, int kind, size_t index);
int dnnl_stream_create(void **stream, void *engine, unsigned flags);
int dnnl_stream_destroy(void *stream);

int dnnl_memory_desc_create_with_strides(
    void **desc, int ndims, const dnnl_dims_t dims, int dtype, const dnnl_dims_t strides);
int dnnl_memory_desc_create_with_tag(
    void **desc, int ndims, const dnnl_dims_t dims, int dtype, int tag);
int dnnl_memory_desc_clone(void **desc, const void *other);
int dnnl_memory_desc_destroy(void *desc);
int dnnl_memory_desc_equal(const void *left, const void *right);
size_t dnnl_memory_desc_get_size(const void *desc);
int dnnl_memory_create(void **memory, const void *desc, void *engine, uintptr_t handle);
int dnnl_memory_set_data_handle(void *memory, uintptr_t handle);
int dnnl_memory_destroy(void *memory);

int dnnl_primitive_attr_create(void **attr);
int dnnl_primitive_attr_set_scratchpad_mode(void *attr, int mode);
int dnnl_primitive_desc_query(const void *desc, int what, int index, void *result);
const void *dnnl_primitive_desc_query_md(const void *desc, int what, int index);
int dnnl_primitive_desc_destroy(void *desc);
int dnnl_primitive_create(void **primitive, const void *desc);
int dnnl_primitive_execute(
    const void *primitive, void *stream, int count, const dnnl_exec_arg_t *args);
int dnnl_primitive_destroy(void *primitive);

int dnnl_reorder_primitive_desc_create(
    void **desc, const void *src, void *src_engine, const void *dst, void *dst_engine,
    const void *attr);
int dnnl_convolution_forward_primitive_desc_create(
    void **desc, void *engine, int kind, int algorithm, const void *src, const void *weights,
    const void *bias, const void *dst, const dnnl_dims_t strides, const dnnl_dims_t dilates,
    const dnnl_dims_t padding_left, const dnnl_dims_t padding_right, const void *attr);
int dnnl_convolution_backward_data_primitive_desc_create(
    void **desc, void *engine, int algorithm, const void *diff_src, const void *weights,
    const void *diff_dst, const dnnl_dims_t strides, const dnnl_dims_t dilates,
    const dnnl_dims_t padding_left, const dnnl_dims_t padding_right, const void *hint,
    const void *attr);
int dnnl_convolution_backward_weights_primitive_desc_create(
    void **desc, void *engine, int algorithm, const void *src, const void *diff_weights,
    const void *diff_bias, const void *diff_dst, const dnnl_dims_t strides,
    const dnnl_dims_t dilates, const dnnl_dims_t padding_left, const dnnl_dims_t padding_right,
    const void *hint, const void *attr);
int dnnl_deconvolution_forward_primitive_desc_create(
    void **desc, void *engine, int kind, int algorithm, const void *src, const void *weights,
    const void *bias, const void *dst, const dnnl_dims_t strides, const dnnl_dims_t dilates,
    const dnnl_dims_t padding_left, const dnnl_dims_t padding_right, const void *attr);
int dnnl_matmul_primitive_desc_create(
    void **desc, void *engine, const void *src, const void *weights, const void *bias,
    const void *dst, const void *attr);
int dnnl_sgemm(
    char transa, char transb, int64_t m, int64_t n, int64_t k, float alpha, uintptr_t a,
    int64_t lda, uintptr_t b, int64_t ldb, float beta, uintptr_t c, int64_t ldc);

int omp_get_max_threads(void);
void omp_set_num_threads(int count);
int omp_pause_resource_all(int kind);
"""

_HEADER = '"""Made from declarations.py by ``python -m weft.native.onednn.declarations``."""\n\n'


def generate() -> str:
    """The text of ``_abi.py``."""
    import contextlib
    import tempfile

    from cffi import FFI

    builder = FFI()
    builder.set_source("weft.native.onednn._abi", None)
    builder.cdef(CDEF)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "_abi.py"
        with contextlib.redirect_stdout(None):
            builder.emit_python_code(str(path))
        body = path.read_text().partition("\n")[2]
    return _HEADER + "# ruff: noqa: E501\n# fmt: off\n# mypy: ignore-errors\n" + body


if __name__ == "__main__":
    Path(__file__).with_name("_abi.py").write_text(generate())
