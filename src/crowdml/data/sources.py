"""What is known of a dataset: what it is, whose it is, and the files that it is made of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from crowdml.core.errors import BadInput
from crowdml.core.records import record
from crowdml.core.targets import Target
from crowdml.data.dataset import Dataset


@record
class Version:
    """One way in which a file may lie on disk, for instance gzipped.

    Attributes:
        path: Name below the dataset's folder.
        size: Bytes, if known.
        sha256: Checksum, if one is known.
        urls: Where the authors or a public mirror offer exactly these bytes.
    """

    path: str
    size: int | None = None
    sha256: str | None = None
    urls: tuple[str, ...] = ()


@record
class File:
    """One file a dataset needs, in any of its versions. An optional file adds something but may be missing."""

    versions: tuple[Version, ...]
    optional: bool = False


@record
class Archive:
    """A packed folder (`.tar.gz`) that holds all files of a form.

    Attributes:
        url: Where to get it.
        size: Its length in bytes.
        folder: The folder inside the archive in which the files lie.
    """

    url: str
    size: int
    folder: str


@record
class Form:
    """A set of files that together make the dataset; a dataset may come in several forms.

    Attributes:
        name: A word for messages.
        files: What belongs to it.
        archive: Where all of it can be fetched at once.
    """

    name: str
    files: tuple[File, ...]
    archive: Archive | None = None


@record
class Source:
    """An entry of the catalogue.

    Attributes:
        name: What task files call it.
        description: One sentence.
        licence: Terms of use, as far as they are known.
        citation: Whom to cite.
        homepage: Where a person can read about it and fetch it by hand.
        rows: Number of training and of test rows.
        features: Number of columns.
        shape: Height, width and colours of images; only the number of columns otherwise.
        target: What rows are mapped to.
        folder: Name of its folder below the data folder.
        forms: In which forms it may be present, best first; none if it comes inside a package.
        load: Reads it from its folder.
        home: Finds it if it comes inside a package.
    """

    name: str
    description: str
    licence: str
    citation: str
    homepage: str
    rows: tuple[int, int]
    features: int
    shape: tuple[int, ...]
    target: Target
    folder: str
    forms: tuple[Form, ...]
    load: Callable[[Path], Dataset]
    home: Callable[[], Path | None] | None = None

    @property
    def label_names(self) -> tuple[str, ...]:
        """The classes; none where the target is a number."""
        return self.target.label_names

    @staticmethod
    def of_function(name: str, function: Callable[[], Dataset]) -> Source:
        """Make an entry of a function that returns the rows; it is called once, to look at them.

        Raises:
            BadInput: It fails, or returns something else.
        """
        try:
            dataset = function()
        except Exception as error:  # whatever somebody else's code raises
            raise BadInput(f'the dataset "{name}" cannot be made: {type(error).__name__}: {error}') from None
        if not isinstance(dataset, Dataset):
            raise BadInput(f'the dataset "{name}": its function returns {type(dataset).__name__}, not a Dataset')
        return Source(
            name=name,
            description=function.__doc__ or "registered from outside",
            licence="not known",
            citation="",
            homepage="",
            rows=(len(dataset.train_targets), len(dataset.test_targets)),
            features=dataset.features,
            shape=(dataset.features,),
            target=dataset.target,
            folder=name,
            forms=(),
            load=lambda folder: dataset,
            home=lambda: Path(),
        )
