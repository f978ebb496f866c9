"""The files of each dataset: names, sizes, checksums and public addresses.

A checksum is that of the authors' published file, or of a compact form without loss made from it.
"""

from __future__ import annotations

from crowdml.data.sources import Archive, File, Form, Version

MNIST_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
FASHION_MIRRORS = ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",)
QMNIST_MIRRORS = ("https://raw.githubusercontent.com/facebookresearch/qmnist/master/",)
ADULT_MIRRORS = ("https://archive.ics.uci.edu/ml/machine-learning-databases/adult/",)
CIFAR10_ARCHIVE = Archive(
    url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", size=170_052_171, folder="cifar-10-batches-bin"
)


def _gz(
    name: str, mirrors: tuple[str, ...], packed: tuple[int, str], plain: tuple[int, str], optional: bool = False
) -> File:
    """Describe a file that is published gzipped and may also lie there unpacked."""
    urls = tuple(f"{mirror}{name}.gz" for mirror in mirrors)
    return File(
        versions=(
            Version(path=f"{name}.gz", size=packed[0], sha256=packed[1], urls=urls),
            Version(path=name, size=plain[0], sha256=plain[1]),
        ),
        optional=optional,
    )


def _text(name: str, mirrors: tuple[str, ...], plain: tuple[int, str], packed: tuple[int, str]) -> File:
    """Describe a file that is published plain and may also lie there gzipped."""
    urls = tuple(f"{mirror}{name}" for mirror in mirrors)
    return File(
        versions=(
            Version(path=name, size=plain[0], sha256=plain[1], urls=urls),
            Version(path=f"{name}.gz", size=packed[0], sha256=packed[1]),
        )
    )


def _file(path: str, size: int, sha256: str) -> File:
    return File(versions=(Version(path=path, size=size, sha256=sha256),))


def _unchecked(path: str) -> File:
    return File(versions=(Version(path=path),))


MNIST = (
    Form(
        name="idx",
        files=(
            _gz(
                "train-images-idx3-ubyte",
                MNIST_MIRRORS,
                (9912422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
                (47040016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
            ),
            _gz(
                "train-labels-idx1-ubyte",
                MNIST_MIRRORS,
                (28881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
                (60008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
            ),
            _gz(
                "t10k-images-idx3-ubyte",
                MNIST_MIRRORS,
                (1648877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
                (7840016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
            ),
            _gz(
                "t10k-labels-idx1-ubyte",
                MNIST_MIRRORS,
                (4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
                (10008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
            ),
            _gz(
                "qmnist-train-labels-idx2-int",
                QMNIST_MIRRORS,
                (463024, "2c05dc77f6b916b38e455e97ab129a42a444f3dbef09b278a366f82904e0dd9f"),
                (1920012, "bb1b6e1ec7b04fd5696f1ed50b5f58f8ef195118edd5c93c81783df9740b8ac5"),
                optional=True,
            ),
        ),
    ),
)
FASHION_MNIST = (
    Form(
        name="idx",
        files=(
            _gz(
                "train-images-idx3-ubyte",
                FASHION_MIRRORS,
                (26421880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
                (47040016, "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"),
            ),
            _gz(
                "train-labels-idx1-ubyte",
                FASHION_MIRRORS,
                (29515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
                (60008, "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"),
            ),
            _gz(
                "t10k-images-idx3-ubyte",
                FASHION_MIRRORS,
                (4422102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
                (7840016, "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"),
            ),
            _gz(
                "t10k-labels-idx1-ubyte",
                FASHION_MIRRORS,
                (5148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
                (10008, "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"),
            ),
        ),
    ),
)
ADULT = (
    Form(
        name="text",
        files=(
            _text(
                "adult.data",
                ADULT_MIRRORS,
                (3974305, "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
                (408969, "c7a2b4716a97f930123e0baf879188d701e798172631a654fc703d4b082907f3"),
            ),
            _text(
                "adult.test",
                ADULT_MIRRORS,
                (2003153, "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"),
                (205254, "8a2c1bffa6e7ce5abfa43881ae5e87c4311ebc2b3cd526c9c40a43f19f06f799"),
            ),
        ),
    ),
)
CIFAR10 = (
    Form(
        name="binary",
        files=(
            _file("data_batch_1.bin", 30_730_000, "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
            _file("data_batch_2.bin", 30_730_000, "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
            _file("data_batch_3.bin", 30_730_000, "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
            _file("data_batch_4.bin", 30_730_000, "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
            _file("data_batch_5.bin", 30_730_000, "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
            _file("test_batch.bin", 30_730_000, "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
        ),
        archive=CIFAR10_ARCHIVE,
    ),
    Form(
        name="mosaics",
        files=(
            _file("data_batch_1.webp", 17070264, "e79bf011802b9499df0edc0a98b1d963919f6aba64eb795f678b948267e00c6c"),
            _file("data_batch_2.webp", 17114746, "e29c4245e0baa96b2860197cb613b8f2dd9f8aab49c87d3ae456178aa1bf9ddf"),
            _file("data_batch_3.webp", 17121656, "69253fbb5e8a865a02e6884bde5285864ad0e71595fc8a138824b48b5ca1b1ab"),
            _file("data_batch_4.webp", 17092448, "104fe13b6f936926f489e9ec44e873be0d18296745afb758163e6fe1ab0b1a2e"),
            _file("data_batch_5.webp", 17071542, "04ca1711b884476012b2d15d8f1c8f65d2c6665531756aef6d377cdde7e97e3f"),
            _file("test_batch.webp", 17101908, "0161784d683bb529761f7de5c8997eb729728aa9ef9ca24556ae601213dc99a4"),
            _file("labels.npz", 30273, "2adcb621b226054b45ea498e5151b50747ee667e75829c059844e7b78f6b5196"),
        ),
    ),
)
TMD = (
    Form(
        name="archive",
        files=(_file("activity_tmd.npz", 2844755, "1e83d4eeb89bf3b390e125a7a22e92315f57bc04ac5f8b90bed2a31badfa2109"),),
    ),
    Form(name="csv", files=(_unchecked("raw_data"),)),
)
HAPT = (
    Form(
        name="archive",
        files=(
            _file("activity_hapt.npz", 4343646, "38f8270c9cab4e66cb425eb7cffce70f8ce96285b98b66da6ed69417b5e52a30"),
        ),
    ),
    Form(name="text", files=(_unchecked("RawData/labels.txt"),)),
)
