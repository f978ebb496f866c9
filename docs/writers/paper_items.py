"""What the five papers have, item by item: where it is here, or why it is not, and the test that holds it to that."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Item:
    """One thing that a paper has.

    Attributes:
        paper: Which.
        what: What it is.
        here: The setting, command or study that has it; or why there is none, and what there is instead.
        test: The test, as pytest names it, with the case in brackets where one of many is meant.
        also: More tests, where one does not check all that is said.
        refused: Whether it is not here on purpose.
    """

    paper: str
    what: str
    here: str
    test: str
    also: tuple[str, ...] = ()
    refused: bool = False

    @property
    def tests(self) -> tuple[str, ...]:
        """All tests."""
        return (self.test, *self.also)


FIRST, LIBRARY, SLICES, ODPFL, ADMM = "Crowd-ML 2015", "Library 2016", "SliceNet", "ODPFL", "Async ADMM"
_PARTS = "tests/task/test_refused_parts.py::test_what_is_refused_says_why_and_what_there_is_instead"
_REFUSALS = "tests/privacy/calibration/test_refusals.py::"


def _refused(paper: str, what: str, why: str, test: str, *also: str) -> Item:
    return Item(paper, what, why, test, also, refused=True)


def _key(word: str) -> str:
    """Name the test of a word of task files that is refused with a reason."""
    return f"{_PARTS}[{word}]"


ITEMS = (
    Item(
        FIRST,
        "real targets (regression)",
        '`data.target`, `model.kind = "linear"`',
        "tests/end_to_end/test_examples.py::test_a_number_is_learnt_under_a_promise",
    ),
    Item(
        FIRST,
        "a row kept only when its label has changed",
        '`sensor = { keep = "label-change" }`; `activity-changes` in `crowdml-2015/fig3`',
        "tests/data/loaders/test_activity_windows.py::test_a_row_is_kept_when_its_owners_label_has_changed",
        ("web/tests/sensing.test.ts::windows are kept once in a slot, or once after a change of label",),
    ),
    Item(
        FIRST,
        "sliding windows of the accelerometer",
        "`windows_of(…, step=16)`; on a phone what is shown and guessed slides, and windows that become rows lie side "
        "by side, so that no reading is in two",
        "tests/data/loaders/test_activity_windows.py::"
        "test_sliding_windows_begin_every_step_and_hold_the_same_as_windows_side_by_side",
    ),
    Item(
        FIRST,
        "noise of an update, equation (13)",
        "`crowdml simulate`, `crowdml privacy explain`",
        "tests/algorithms/test_update_analysis.py::test_the_noise_is_that_of_drawn_check_ins",
    ),
    Item(
        FIRST,
        "updates missed, (τ_co + τ_ci)·M·F_s/b",
        "`crowdml simulate`, `crowdml privacy explain`",
        "tests/algorithms/test_update_analysis.py::test_delays_are_counted_in_updates_of_others",
    ),
    Item(
        FIRST,
        "traffic, b/2 times less",
        "`crowdml simulate`, `crowdml privacy explain`",
        "tests/algorithms/test_update_analysis.py::test_traffic_is_b_over_2_where_a_model_is_as_long_as_a_row",
    ),
    Item(
        FIRST,
        "label distribution, equation (14), live",
        "the page of a task",
        "tests/server/pages/test_statistics.py::test_label_counts_are_shown_as_shares_with_a_band",
    ),
    Item(
        FIRST,
        "totals of each device",
        "the operator's page of a crowd",
        "tests/server/pages/operator/test_operating.py::test_devices_are_listed_with_their_totals_and_revoked",
    ),
    Item(
        FIRST,
        "ε_g, ε_e and ε_y apart",
        "`privacy.epsilon`, `statistics-epsilon` and `label-share`",
        "tests/privacy/calibration/test_count_shares.py::test_each_of_the_three_gets_its_own_epsilon",
    ),
    Item(
        FIRST,
        "random first weights",
        '`model.start = "random"`',
        "tests/models/test_kinds.py::test_linear_models_may_begin_at_random",
    ),
    Item(
        FIRST,
        "other server updates (remark 3): dual averaging, adaptive rates",
        '`algorithm.rate.kind = "dual-averaging"`, `adagrad`, `adam`, `yogi`, …',
        "tests/algorithms/test_rates.py::test_four_steps",
    ),
    _refused(
        FIRST,
        "SAG, SAGA and vSGD as server updates (remark 3)",
        "the first two add old noise again and again, the third needs the variance of single gradients, which noise "
        "hides; dual averaging and adaptive rates instead",
        _key("sag"),
        _key("saga"),
        _key("vsgd"),
    ),
    Item(
        FIRST,
        "tasks to browse and their details on a portal",
        "`/` and the page of a task",
        "tests/portal/test_portal.py::test_a_newcomer_finds_six_answers_on_two_screens",
    ),
    Item(
        LIBRARY,
        "a library for phones",
        "a browser is a device: `crowdml demo --phone`",
        "tests/web/browser/test_browser_device.py::test_a_browser_contributes",
    ),
    Item(
        LIBRARY,
        "validation accuracy while a task runs",
        "`data.validation` in simulation; live `crowdml task create --public FILE`, on the page of the task",
        "tests/server/pages/test_statistics.py::test_public_rows_give_an_error_where_devices_count_none",
    ),
    Item(
        LIBRARY,
        "waiting for a network that is not metered",
        "`crowdml device run --unmetered`",
        "tests/device/test_metered.py::test_a_device_waits_before_every_contact",
    ),
    Item(
        LIBRARY,
        "T_d contacts, then no more",
        "`stop.max-releases`",
        "tests/device/test_accepted_terms.py::test_the_last_release_of_the_terms_closes_the_task",
    ),
    Item(
        LIBRARY,
        "equation (10): the whole change is bounded",
        '`privacy.clip` with `unit = "device"`, enforced and not assumed',
        "tests/privacy/test_counterexamples_2016.py::test_the_bound_on_the_whole_change_holds_at_the_corner",
    ),
    _refused(
        LIBRARY,
        "equation (11), and the factor 1/N",
        "neither holds in general; the whole change is clipped, and stable steps are proven where they are",
        f"{_REFUSALS}test_a_paper_task_is_refused[ε for a change after local steps]",
        "tests/privacy/test_counterexamples_2016.py::test_equation_11_divides_by_a_convexity_that_a_step_does_not_have",
        "tests/privacy/test_counterexamples_2016.py::test_the_reduction_by_the_number_of_rows_fails_for_two_steps",
    ),
    _refused(
        LIBRARY,
        "refused check-ins counted in s_s",
        "a version would be a mean of fewer check-ins than the server's batch, or of none; only those used count",
        "tests/server/tasks/test_folding.py::test_a_refused_check_in_does_not_fill_the_window",
    ),
    _refused(
        LIBRARY,
        "noise sequences live",
        "noise that shrinks or depends on earlier noise is not what a ledger can charge; in simulation",
        f"{_REFUSALS}test_a_sound_task_is_refused[noise that shrinks]",
        f"{_REFUSALS}test_a_sound_task_is_refused[noise that follows the rate]",
        f"{_REFUSALS}test_a_sound_task_is_refused[noise that depends on earlier noise]",
    ),
    _refused(
        LIBRARY,
        "improving off-line between contacts",
        "steps would depend on the network and use rows that no release counts; `local-steps`, `crowdml device "
        "personal` and `ditto` instead",
        _key("offline-steps"),
    ),
    _refused(
        LIBRARY,
        "each element of a gradient clamped to ±c",
        "the bound grows with √d however short gradients are; `privacy.clip` bounds the length",
        _key("clip-elements"),
    ),
    _refused(
        LIBRARY,
        "sensitivity from the range of weights",
        "false for ReLU, loose elsewhere; `privacy.clip`, and `algorithm.radius` for weights",
        _key("weight-range"),
    ),
    _refused(
        LIBRARY,
        "a trusted server that adds noise once",
        "no device could tell whether it does; secure aggregation with γ = 1 has the same noise in the average",
        _key("trusted-server"),
    ),
    _refused(
        LIBRARY,
        "the papers' own noise, live and under secure aggregation",
        "floating-point noise reveals what it should hide, and sums need whole numbers; mode `sound`",
        f"{_REFUSALS}test_a_live_task_is_refused[a paper's formula]",
        f"{_REFUSALS}test_a_paper_task_is_refused[a paper's noise under masks]",
    ),
    Item(
        SLICES,
        "the protocol between devices: keys, relay, hand-over, dummies",
        '`algorithm.kind = "slicenet"` live',
        "tests/end_to_end/test_live_slices.py::test_followers_and_dummies_are_killed",
    ),
    Item(
        SLICES,
        "devices known to each other by pseudonyms and pinned keys only",
        "cards that are signed for one task; pages show pseudonyms",
        "tests/slicing/live/test_frames.py::test_cards_are_signed_for_one_task_and_identities_are_pinned",
    ),
    Item(
        SLICES,
        "overlap: micro-batches follow each other through the pieces",
        "`algorithm.micro-batches`",
        "tests/simulation/test_sliced_course.py::test_hops_are_the_floor_and_slow_links_want_micro_batches",
    ),
    Item(
        SLICES,
        "followers and dummies dealt anew in every turn; a dummy steps in within a turn",
        "`algorithm.dummies`, `crowd.relay`; simulated and live",
        "tests/simulation/test_sliced_course.py::"
        "test_a_dummy_takes_the_piece_of_a_lost_follower_and_batches_are_replayed_from_the_cut",
    ),
    Item(
        SLICES,
        "a group keeps a model of its own beside what it shares",
        "every group has one; `slicenet` tells the mean of their errors, and live each hands over its own",
        "tests/slicing/live/test_following_the_task.py::test_a_stopped_group_hands_over_its_last_cut_and_says_why",
    ),
    Item(
        SLICES,
        "convergence (figures 3 to 6)",
        "`slicenet/fig3` to `slicenet/fig6`",
        "tests/studies/test_slicenet.py::test_convergence_is_alike_or_not",
        ("tests/studies/test_slicenet.py::test_a_window_of_as_many_uploads_as_groups_converges_later_or_not",),
    ),
    Item(
        SLICES,
        "the convolutional net on CIFAR-10 (CNN columns of tables I to IV)",
        "`slicenet/cnn-all`, curve by curve: hours on a processor; `slicenet/cnn` has the first passes of table I",
        "tests/studies/test_slicenet.py::test_photographs_are_compared_when_all_passes_are_done",
        ("tests/studies/test_slicenet.py::test_first_passes_are_shown_and_compared_with_nothing",),
    ),
    Item(
        SLICES,
        "messages of fewer bits",
        "`algorithm.numbers`",
        "tests/slicing/test_number_formats.py::test_numbers_come_back_as_near_as_the_format_can",
        ("tests/slicing/test_piece_owner.py::test_numbers_that_are_rounded_on_their_way",),
    ),
    Item(
        SLICES,
        "the cost of Definition 1",
        "`crowdml slice`; ours is 1 + out-degree, which gives table V, and Definition 1 as written does not",
        "tests/studies/test_slicenet.py::test_definition_1_as_it_is_written_does_not_give_table_v",
    ),
    _refused(
        SLICES,
        "120 processes",
        "slicing is exact, so one process computes what 120 would; live groups are processes of their own",
        "tests/end_to_end/test_live_sharing.py::test_mnist_in_two_groups_has_the_error_of_one_process",
    ),
    Item(
        ODPFL,
        "unconstrained averaging of whole models",
        '`learned = { variant = "unconstrained" }`',
        "tests/algorithms/aggregation/test_weights.py::test_unconstrained_weights_combine_whole_models_and_not_changes",
    ),
    Item(
        ODPFL,
        "a weight for every trainable array",
        '`learned = { per = "tensor" }`',
        "tests/algorithms/aggregation/test_weights.py::test_arrays_are_weighed_by_themselves",
    ),
    Item(
        ODPFL,
        "DP-SGD and learned averaging together (its title)",
        "`odpfl/both`",
        "tests/studies/test_odpfl.py::test_noise_in_steps_and_learned_averaging_can_fail",
    ),
    Item(
        ODPFL,
        "its own setting: TensorFlow's tutorial net, 10 devices, 130 and 200 rounds, 5 % public",
        "`odpfl/own-all`, curve by curve: hours on a processor; `odpfl/own` has its first rounds",
        "tests/studies/test_odpfl.py::test_the_papers_own_setting_is_there_in_full",
        (
            "tests/studies/test_odpfl.py::test_both_figures_of_the_papers_own_setting_come_from_one_run",
            "tests/studies/test_odpfl.py::test_first_rounds_are_shown_and_compared_with_nothing",
        ),
    ),
    Item(
        ODPFL,
        "loss curves",
        '`odpfl/fig1` and `odpfl/fig2` draw them; anywhere `crowd.measure = ["loss"]`, `crowdml simulate --plot`',
        "tests/simulation/reporting/test_measures.py::test_loss_and_errors_are_those_of_the_model",
        ("tests/studies/test_odpfl.py::test_figures_1_and_2_have_the_loss_beside_the_accuracy",),
    ),
    Item(
        ODPFL,
        "private training without convolutions, and with random fixed ones",
        "`odpfl/private`: the dense layers of the paper's net, alone and on random convolutions that do not learn",
        "tests/studies/test_odpfl_private.py::test_variants_without_convolutions_that_learn_are_set_beside_the_papers",
    ),
    _refused(
        ODPFL,
        "rows of figure 1 drawn with replacement",
        "a row on two devices would be charged by two ledgers that know nothing of each other; every row is dealt once",
        _key("replacement"),
    ),
    _refused(
        ODPFL,
        "frozen layers that begin from a file",
        "layers that do not learn are features: `data.transform` holds them, so that no noise is spent on them",
        _key("frozen"),
    ),
    _refused(
        ODPFL,
        "principal components with noise (DP-PCA)",
        "they would spend ε before anything is learnt; public rows, or features that learn nothing",
        _key("dp-pca"),
    ),
    Item(
        ADMM,
        "figure 3 with n = 150",
        "`admm/fig3`",
        "tests/studies/test_admm.py::test_figure_3_has_all_numbers_of_devices_that_the_paper_has",
    ),
    Item(
        ADMM,
        "√|Ω_k| times less noise than local differential privacy",
        "`admm/total`: fedsgd with secure aggregation, and each device by itself",
        "tests/studies/test_admm.py::test_a_sum_of_n_needs_a_root_of_n_times_less_noise_than_local_privacy",
    ),
    Item(
        ADMM,
        "linear regression",
        '`admm` with `model.kind = "linear"`',
        "tests/algorithms/recipes/test_admm.py::test_a_number_is_fitted_as_ridge_regression_would",
    ),
    Item(
        ADMM,
        "honest part γ in the noise, N(0, σ²/(γ·s))",
        "`algorithm.honest` in paper mode, `secure-aggregation.honest` in sound mode",
        "tests/algorithms/recipes/test_admm.py::test_fewer_honest_devices_make_each_add_more_noise",
    ),
    Item(
        ADMM,
        "|Ω_k| ≥ s and bounded delay τ, live",
        "`algorithm.barrier` and `max-delay`: a place is kept for who is overdue, until a stage's time is up",
        "tests/server/tasks/test_secure_members.py::test_places_are_kept_for_the_overdue_until_they_are_given_up",
        ("tests/end_to_end/device/test_barrier.py::test_devices_that_are_ready_make_up_a_version",),
    ),
    _refused(
        ADMM,
        "Δw and Δλ with noise, as messages of a promise",
        "duals remember noise, and sums over changing members reveal old ones; `admm-sums` sends one vector",
        "tests/algorithms/recipes/test_admm.py::test_promises_need_the_form_made_for_sums",
    ),
    _refused(
        ADMM,
        "light aggregation (pairwise seeds once)",
        "a late upload lays its sender bare; every sum is masked twice",
        _key("light"),
    ),
)


FIGURES: dict[str, dict[str, str]] = {
    FIRST: {
        "figure 1 (the system)": "concepts/layer-map.md",
        "figure 2 (a device's routine)": "concepts/device.md",
        "table I (losses, their gradients)": "reference/task-file.md",
        **{f"figure {number}": f"crowdml-2015/fig{number}" for number in range(3, 10)},
    },
    LIBRARY: {
        "figure 1 (the system)": "concepts/layer-map.md",
        "table of losses (section 2.1)": "reference/task-file.md",
        "figure 2": "crowdml-2016/fig2",
        "80 devices and a single one (text)": "crowdml-2016/devices",
    },
    SLICES: {
        "figure 1 (a sliced net)": "concepts/slicing.md",
        "figure 2 (its two nets)": "slicenet/table6",
        **{f"figure {number}": f"slicenet/fig{number}" for number in range(3, 7)},
        **{f"table {number}": f"slicenet/table{at}" for at, number in enumerate("I II III IV V VI VII".split(), 1)},
        "tables I to IV, convolutional net": "slicenet/cnn-all",
        "table I, convolutional net, first passes": "slicenet/cnn",
    },
    ODPFL: {
        "figure 1": "odpfl/fig1",
        "figure 2": "odpfl/fig2",
        "figures 1 and 2, the paper's own net and photographs": "odpfl/own-all",
        "figures 1 and 2, the paper's own net and photographs, first rounds": "odpfl/own",
        "private variants (text)": "odpfl/private",
    },
    ADMM: {
        "figure 1 (the system)": "concepts/admm.md",
        "figure 2 (secure aggregation)": "how-to/secure-aggregation.md",
        "figure 3": "admm/fig3",
        "figure 4": "admm/fig4",
        "partial barrier and bounded delay (text)": "admm/async",
    },
}
"""By paper, every figure and table: the study that makes it, or the page that tells what it draws."""


def figures_table() -> str:
    """Write where each figure and table of the papers is."""
    lines = ["| paper | figure or table | here |", "|---|---|---|"]
    for paper, figures in FIGURES.items():
        for what, where in figures.items():
            link = f"[a page]({where})" if where.endswith(".md") else f"[`{where}`](#{where.replace('/', '')})"
            lines.append(f"| {paper} | {what} | {link} |")
    return "\n".join(lines)


def items_table() -> str:
    """Write the table."""
    lines = ["| paper | what it has | here |", "|---|---|---|"]
    for item in ITEMS:
        here = f"not on purpose: {item.here}" if item.refused else item.here
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in (item.paper, item.what, here)) + " |")
    return "\n".join(lines)
