"""No message over 256 KB, whatever a run produces; what is cut is said."""

from __future__ import annotations

import samples

from maxkernel_nb import events as ev
from maxkernel_nb.document.build import document
from maxkernel_nb.engine.state import fold
from maxkernel_nb.patches import make_patch
from maxkernel_nb.widgets.limits import MESSAGE_BYTES, fit, size


def fitted(events):
    data = fit(document(fold(events)))
    assert size(data) <= MESSAGE_BYTES
    return data


def test_a_small_document_is_left_alone():
    made = document(fold(samples.accepted()))
    assert fit(made) == made.to_dict()


def test_many_candidates_keep_the_best_and_the_newest():
    more = [ev.CandidateAdded(candidate=samples.candidate(source=f"# {n}\n" * 40)) for n in range(1500)]
    data = fitted([*samples.tuned(), *more])
    ids = [row["id"] for row in data["candidates"]]
    assert samples.candidate().id in ids and more[-1].candidate.id == ids[-1]
    assert any("candidates" in told for told in data["trimmed"])


def test_a_long_diff_and_source_are_cut_by_lines():
    text = "".join(f"x{n} = {n}  # {'y' * 60}\n" for n in range(6000))
    proposal = ev.ProposalMade(
        proposal="big", candidate=samples.candidate().id, patch=make_patch("a\n", text), claim=""
    )
    data = fitted([*samples.tuned(), ev.CandidateAdded(candidate=samples.candidate(source=text)), proposal])
    assert data["diff"]["added"] == 6000
    assert "diff (" in data["trimmed"][0] and "of 6001 lines" in data["trimmed"][0]


def test_a_megabyte_in_every_field_fits():
    assert fitted(samples.hostile("<é" * 500_000))["trimmed"]


def test_many_lines_of_notes_and_quotes_fit():
    notes = [ev.Noted(text=f'{n} "quoted" \n' * 200) for n in range(300)]
    assert len(fitted([*samples.tuned(), *notes])["notes"]) < 300
