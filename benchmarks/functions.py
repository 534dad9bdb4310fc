"""What functions cost on tensors of a middling size: one thread, CPU time, everything once.

A table as wide as the library: it is to show what nobody has looked at yet.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from types import CodeType
from typing import Any

import numpy as np

from benchmarks.timing import Row, mean_row, report, save

SIDE = 300
ROUNDS, SECONDS = 9, 0.5
LIMIT, MEAN_LIMIT = 3.0, 1.0
# Of x, y (any sign), p (positive), d (float64), v (a row), k (integers), i, ii (indices), b (a
# mask), im (images), sq (sequences) and F (torch.nn.functional).
FUNCTIONS = """
    x+y ;; x*2 ;; x/y ;; x//y ;; x%y ;; x**2 ;; x**3 ;; p**0.5 ;; p**1.7 ;; p**y ;; 2**x ;; -x ;;
    abs(x) ;; x.exp() ;; p.log() ;; p.sqrt() ;; p.rsqrt() ;; x.sin() ;; x.cos() ;; x.tan() ;;
    x.tanh() ;; x.sigmoid() ;; x.erf() ;; x.erfinv() ;; x.exp2() ;; p.log2() ;; p.log10() ;;
    p.log1p() ;; x.expm1() ;; x.atan() ;; x.asin() ;; x.sinh() ;; x.cosh() ;; x.asinh() ;;
    p.lgamma() ;; p.digamma() ;; x.round() ;; x.floor() ;; x.ceil() ;; x.trunc() ;; x.frac() ;;
    x.sign() ;; x.square() ;; x.reciprocal() ;; x.clamp(-1,1) ;; x.clamp(min=0) ;; lib.atan2(x,y) ;;
    lib.hypot(x,y) ;; lib.fmod(x,y) ;; lib.remainder(x,2.0) ;; lib.lerp(x,y,.3) ;;
    lib.addcmul(x,y,p) ;; lib.addcdiv(x,y,p) ;; lib.where(b,x,y) ;; lib.maximum(x,y) ;;
    lib.minimum(x,y) ;; x>y ;; x==y ;; b&~b ;; b.any() ;; b.all() ;; b.sum() ;; x.isnan() ;;
    x.isfinite() ;; x.nan_to_num() ;; lib.isclose(x,y) ;; lib.allclose(x,x) ;; x.masked_fill(b,0) ;;
    x[b] ;; x[i] ;; x[:,i] ;; x[i,i] ;; x.gather(1,ii) ;; x.scatter(1,ii,y) ;; x.scatter_add(1,ii,y)
    ;; x.index_select(0,i) ;; x.index_add(0,i,y) ;; x.take(k) ;; x.nonzero() ;; b.nonzero() ;;
    x.sum() ;; x.sum(0) ;; x.sum(1) ;; x.mean() ;; x.mean(0) ;; x.var() ;; x.std(0) ;; x.std(1) ;;
    x.norm() ;; x.norm(dim=1) ;; x.max() ;; x.min() ;; x.max(0) ;; x.max(1) ;; x.argmax() ;;
    x.argmax(0) ;; x.argmax(1) ;; x.amax(1) ;; x.prod() ;; p.prod(1) ;; x.median() ;; x.median(1) ;;
    x.mode(1) ;; x.quantile(.5) ;; x.sort() ;; x.sort(dim=0) ;; x.argsort() ;; x.topk(5) ;;
    x.kthvalue(5) ;; x.cumsum(0) ;; x.cumsum(1) ;; p.cumprod(1) ;; x.logcumsumexp(1) ;; x.cummax(1)
    ;; x.logsumexp(1) ;; x.softmax(1) ;; x.log_softmax(1) ;; x.unique() ;; k.unique() ;;
    k.flatten().bincount() ;; lib.histc(x,50) ;; lib.bucketize(x,v.sort()[0]) ;;
    lib.searchsorted(v.sort()[0],x) ;; x.flip(0) ;; x.flip(1) ;; x.roll(5,0) ;; x.roll(5,1) ;;
    x.rot90() ;; x.t().contiguous() ;; x.repeat(2,2) ;; x.repeat_interleave(2,0) ;; x.tile(2) ;;
    lib.cat([x,y],0) ;; lib.cat([x,y],1) ;; lib.stack([x,y]) ;; x.tril() ;; x.triu() ;; x.diag() ;;
    x.diagonal().sum() ;; lib.arange(90000) ;; lib.linspace(0,1,90000) ;; lib.zeros(300,300) ;;
    lib.ones(300,300) ;; lib.full((300,300),2.) ;; x.clone() ;; x.double() ;; x.half() ;;
    x.bfloat16() ;; x.int() ;; k.float() ;; k+k ;; k*k ;; k//3 ;; k%7 ;; k.sum() ;; k.max() ;; k<<1
    ;; k&3 ;; d.exp() ;; d+d ;; d.sum() ;; d.tanh() ;; d@d ;; x@y ;; x@v ;; v@v ;; lib.outer(v,v) ;;
    lib.einsum('ij,jk->ik',x,y) ;; lib.einsum('ij,ij->i',x,y) ;; lib.bmm(sq,sq.transpose(1,2)) ;;
    lib.cdist(x[:100],y[:100]) ;; lib.linalg.inv(x[:64,:64]) ;; lib.linalg.svd(x[:64,:64]) ;;
    lib.linalg.qr(x[:64,:64]) ;; lib.linalg.solve(x[:64,:64],y[:64,:64]) ;;
    lib.linalg.det(x[:64,:64]) ;; lib.linalg.eigh(x[:64,:64]@x[:64,:64].t()) ;;
    lib.linalg.cholesky(x[:64,:64]@x[:64,:64].t()+100*lib.eye(64)) ;; lib.fft.fft(x) ;;
    lib.fft.rfft2(x) ;; lib.kron(x[:20,:20],y[:20,:20]) ;;
    lib.meshgrid(v,v,indexing='ij')[0].contiguous() ;; x.unfold(0,3,1).contiguous() ;; F.relu(x) ;;
    F.gelu(x) ;; F.silu(x) ;; F.elu(x) ;; F.selu(x) ;; F.leaky_relu(x) ;; F.softplus(x) ;;
    F.hardswish(x) ;; F.hardsigmoid(x) ;; F.mish(x) ;; F.logsigmoid(x) ;; F.glu(x) ;; F.softsign(x)
    ;; F.tanhshrink(x) ;; F.hardshrink(x) ;; F.prelu(x,v[:1]) ;; F.layer_norm(x,(300,)) ;;
    F.normalize(x) ;; F.cosine_similarity(x,y) ;; F.pairwise_distance(x,y) ;; F.mse_loss(x,y) ;;
    F.l1_loss(x,y) ;; F.smooth_l1_loss(x,y) ;; F.huber_loss(x,y) ;; F.cross_entropy(x,i) ;;
    F.nll_loss(x,i) ;; F.kl_div(x,p) ;; F.binary_cross_entropy(p.clamp(0,1),p.clamp(0,1)) ;;
    F.binary_cross_entropy_with_logits(x,p) ;; F.hinge_embedding_loss(x,x.sign()) ;;
    F.margin_ranking_loss(v,v,v.sign()) ;; F.triplet_margin_loss(x,y,p) ;;
    F.cosine_embedding_loss(x,y,v.sign()) ;; F.poisson_nll_loss(x,p) ;; F.gaussian_nll_loss(x,y,p)
    ;; F.one_hot(i,300) ;; F.embedding(ii,x) ;; F.dropout(x,.5) ;; F.pad(x,(1,1,1,1)) ;;
    F.pad(im,(1,1,1,1),mode='reflect') ;; F.pad(im,(1,1,1,1),mode='replicate') ;;
    F.pad(im,(1,1,1,1),mode='circular') ;; F.max_pool2d(im,2) ;; F.avg_pool2d(im,2) ;;
    F.max_pool2d(im,3,1,1) ;; F.avg_pool2d(im,3,1,1) ;; F.adaptive_avg_pool2d(im,1) ;;
    F.adaptive_avg_pool2d(im,7) ;; F.adaptive_max_pool2d(im,7) ;; F.lp_pool2d(im,2,2) ;;
    F.interpolate(im,scale_factor=2) ;; F.interpolate(im,scale_factor=2,mode='bilinear') ;;
    F.interpolate(im,scale_factor=2,mode='bicubic') ;; F.interpolate(im,scale_factor=.5,mode='area')
    ;; F.unfold(im,3) ;; F.fold(F.unfold(im,2,stride=2),(48,48),2,stride=2) ;; F.pixel_shuffle(im,2)
    ;; F.batch_norm(im,None,None,training=True) ;; F.instance_norm(im) ;; F.group_norm(im,4) ;;
    F.local_response_norm(im,3) ;; F.conv2d(im,im[:,:,:3,:3].contiguous()) ;;
    F.conv1d(sq.transpose(1,2).contiguous(),sq[:8,:32,:3].contiguous()) ;;
    F.conv_transpose2d(im,im.transpose(0,1)[:,:,:3,:3].contiguous()) ;;
    F.scaled_dot_product_attention(sq[None],sq[None],sq[None]) ;;
    F.grid_sample(im,im[:,:2,:,:].permute(0,2,3,1).contiguous().tanh(),align_corners=False) ;;
    lib.randn(300,300) ;; lib.rand(300,300) ;; lib.randint(0,9,(300,300)) ;; lib.randperm(90000) ;;
    lib.bernoulli(p.clamp(0,1)) ;; lib.multinomial(p,5) ;; lib.normal(x,p) ;;
    x.view(-1)[::2].contiguous() ;; x[::2,::2].contiguous() ;; x.transpose(0,1)+y ;;
    x.permute(1,0)*2 ;; x.expand(3,300,300).sum(0) ;; x.numpy() ;; x.diff() ;; lib.trapezoid(x) ;;
    lib.cross(x[:,:3],y[:,:3]) ;; lib.tensordot(x,y,1) ;; lib.cov(x[:50]) ;; lib.corrcoef(x[:50]) ;;
    x.count_nonzero() ;; lib.heaviside(x,v[:1]) ;; lib.logaddexp(x,y) ;; lib.xlogy(p,p) ;;
    lib.special.entr(p) ;; lib.special.i0(x) ;; lib.special.ndtr(x) ;; lib.polar(p,x) ;;
    lib.view_as_complex(x.view(300,150,2))*2 ;; lib.complex(x,y).abs() ;; lib.vander(v[:50]) ;;
    x.masked_select(b) ;; lib.take_along_dim(x,ii,1) ;; x.index_fill(0,i,1.) ;; x.index_copy(0,i,y)
    ;; lib.tril_indices(200,200) ;; lib.combinations(v[:60]) ;; lib.cartesian_prod(v[:50],v[:50]) ;;
    x.aminmax() ;; lib.std_mean(x,0) ;; x.renorm(2,0,1.) ;; lib.logspace(0,1,9000) ;;
    x.swapaxes(0,1).reshape(-1) ;; x.unflatten(0,(30,10)).sum(1) ;;
    lib.block_diag(x[:50,:50],y[:50,:50]) ;; lib.bitwise_not(k) ;; k.float().softmax(-1) ;;
    x.sum((0,1)) ;; im.sum((0,2,3)) ;; im.mean((2,3)) ;; im.permute(0,2,3,1).contiguous() ;;
    im.flatten(1)@im.flatten(1).t() ;; im.amax((2,3))
"""


def expressions() -> list[str]:
    """The table, one by one."""
    return [part.strip() for part in FUNCTIONS.replace("\n", " ").split(" ;; ")]


def operands(lib: Any, backward: bool) -> dict[str, Any]:
    """What the expressions are about."""
    draw = np.random.default_rng(0)

    def real(*shape: int, dtype: str = "f4") -> Any:
        made = lib.tensor(draw.standard_normal(shape).astype(dtype))
        return made.requires_grad_() if backward else made

    x, y, d = real(SIDE, SIDE), real(SIDE, SIDE), real(SIDE, SIDE, dtype="f8")
    p = lib.tensor((draw.random((SIDE, SIDE)) + 0.1).astype("f4"))
    return {
        "lib": lib,
        "F": lib.nn.functional,
        "x": x,
        "y": y,
        "d": d,
        "v": real(SIDE),
        "im": real(4, 8, 48, 48),
        "sq": real(16, 50, 32),
        "p": p.requires_grad_() if backward else p,
        "b": x.detach() > 0,
        "i": lib.tensor(draw.integers(0, SIDE, SIDE)),
        "ii": lib.tensor(draw.integers(0, SIDE, (SIDE, SIDE))),
        "k": lib.tensor(draw.integers(0, 100, (SIDE, SIDE))),
    }


def call(code: CodeType, names: dict[str, Any], backward: bool) -> Callable[[], None]:
    """An expression as a function; with its backward pass, from the first result."""

    def run() -> None:
        out = eval(code, names)
        if backward:
            out = out[0] if isinstance(out, (tuple, list)) else out
            (out.abs() if out.is_complex() else out).sum().backward()

    return run


def fastest(functions: list[Callable[[], None]]) -> list[float]:
    """The least CPU time of each, in microseconds, taking turns."""
    best = [float("inf")] * len(functions)
    start = time.perf_counter()
    for _ in range(ROUNDS):
        for k, function in enumerate(functions):
            begin = time.process_time()
            function()
            best[k] = min(best[k], time.process_time() - begin)
        if time.perf_counter() - start > SECONDS:
            break
    return [seconds * 1e6 for seconds in best]


def run(*arguments: str) -> bool:
    """Print the slowest of all, and the mean; True if both are within their limits."""
    import torch

    import weft

    parser = argparse.ArgumentParser(prog="python -m benchmarks functions", description=__doc__)
    parser.add_argument("only", nargs="*", help="parts of expressions; without, all of them")
    parser.add_argument("--backward", action="store_true", help="with the backward pass of each")
    parser.add_argument("--most", type=int, default=40, help="rows to print")
    parser.add_argument("--json", metavar="FILE", help="also write the rows there")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    weft.set_num_threads(1)
    torch.set_num_threads(1)
    names = [operands(lib, options.backward) for lib in (weft, torch)]
    rows = []
    for text in expressions():
        if options.only and not any(part in text for part in options.only):
            continue
        code = compile(text, text, "eval")
        pair = [call(code, each, options.backward) for each in names]
        try:
            for function in reversed(pair):
                function()
        except (RuntimeError, AttributeError):  # what has no derivative
            if not options.backward:
                raise
            continue
        rows.append(Row(text, *fastest(pair), limit=LIMIT))
    rows.sort(key=lambda row: -row.ratio)
    mean = mean_row(rows, MEAN_LIMIT)
    fine = report("functions, one thread, CPU time: the slowest", [*rows[: options.most], mean])
    if options.json:
        save(rows, options.json)
    return fine
