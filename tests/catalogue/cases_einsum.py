"""Cases of Einsum."""

from __future__ import annotations

from catalogue.cases import Case, case


def _einsum(equation: str, *shapes: str) -> Case:
    return case("Einsum", shapes, {"equation": equation}, rtol=1e-4, atol=1e-5)


CASES = [
    _einsum("ij,jk->ik", "f32[3,5]", "f32[5,7]"),
    _einsum("ij,jk", "f32[3,5]", "f32[5,7]"),
    _einsum("bhqd,bhkd->bhqk", "f32[N=2,3,4,8]", "f32[N=2,3,5,8]"),
    _einsum("b...q,b...k->...qk", "f32[2,3,4]", "f32[2,3,5]"),
    case("Einsum", ["f32[2,3,4,5]", "f32[5,6]"], {"equation": "...ij,...jk->...ik"}),
    _einsum("ij->ji", "f32[3,33]"),
    _einsum("ij->", "f32[3,33]"),
    _einsum("ij->i", "f32[3,33]"),
    _einsum("i,j->ij", "f32[3]", "f32[17]"),
    _einsum("i,i->i", "f32[17]", "f32[17]"),
    _einsum("i,i->", "f32[17]", "f32[17]"),
    _einsum("...ii->...i", "f32[2,4,4]"),
    _einsum("ii", "f32[5,5]"),
    _einsum("bn,anm,bm->ba", "f32[2,5]", "f32[3,5,7]", "f32[2,7]"),
    _einsum("abc,cde->abde", "f32[N=2,3,4]", "f32[4,5,6]"),
    _einsum("abcd,bd->ac", "f32[2,3,4,5]", "f32[3,5]"),
    _einsum("nctv,vw->nctw", "f32[N=2,3,T=5,4]", "f32[4,6]"),
    _einsum("ij,jk->ik", "f64[3,5]", "f64[5,7]"),
    _einsum("ab,b->ab", "f32[3,5]", "f32[5]"),
    _einsum("bij,bjk->bik", "f32[1,2,3]", "f32[4,3,5]"),  # sizes of 1 broadcast, under letters as under dots
    _einsum("ij,jk->ik", "f32[2,1]", "f32[3,5]"),
    _einsum("ij,jk->ik", "f32[2,1]", "f32[N=3,5]"),
    _einsum("i,i->", "f32[1]", "f32[4]"),
    _einsum("i,i->i", "f32[4]", "f32[1]"),
    _einsum("abc,cb,a->ac", "f32[2,1,3]", "f32[1,4]", "f32[1]"),
    _einsum("...ij,...jk->...ik", "f32[1,2,3]", "f32[4,3,5]"),
    _einsum("bii,bi->bi", "f32[1,3,3]", "f32[2,1]"),
    _einsum("ij,jk->ik", "f32[2,0]", "f32[0,3]"),
    _einsum("ij,jk->ik", "f32[2,N=0]", "f32[N=0,3]"),
    _einsum("ij,jk->ik", "f32[0,4]", "f32[4,3]"),
    _einsum("abc,cde->abde", "f32[2,0,4]", "f32[4,5,6]"),
    _einsum("abc,bcd->ad", "f32[2,0,4]", "f32[0,4,6]"),
    _einsum("i,i->", "f32[0]", "f32[1]"),
    _einsum("ii->", "f32[0,0]"),
    _einsum("ij->i", "f32[2,0]"),
    _einsum(" i j , j k -> i k ", "f32[3,5]", "f32[5,7]"),
]
