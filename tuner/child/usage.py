"""What a model uses the values of its inputs for: how much is computed, and which rows of its tables are read.

A walk follows the values through a graph, operator by operator, in ONNX's words. It has to know of three things:

    Gather(table, Cast(ids))             ids are rows of the table, whatever stands between that keeps their numbers
    Gather(table, Mod(Mul(ids, 31), n))  any numbers are possible: a remainder bounds them, and spreads them
    Gather(table, Add(ids, offsets))     each of some constants begins a part of the table, and ids are rows of a part
    Gather(table, Mul(ids, factor))      an index is worked out, and which numbers are possible is not known
"""

from __future__ import annotations

from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

NONE: FrozenSet[str] = frozenset()


class Value(NamedTuple):
    """What is known of a value in a graph.

    `depends` are the inputs of the model that it depends on. It has the same numbers as those in `same`. Whatever those
    in `bounded` hold, it is a possible index. `dims` is the shape of a constant, () of anything else. `numbers` are
    those of a constant of few whole numbers, or what is added to the numbers of `same`. Each of its
    numbers is worked out from one number of each of `near`. `places` show where dimensions of inputs stand: input,
    dimension, place.
    """

    depends: FrozenSet[str] = NONE
    same: FrozenSet[str] = NONE
    bounded: FrozenSet[str] = NONE
    dims: Tuple[int, ...] = ()
    numbers: Tuple[int, ...] = ()
    near: FrozenSet[str] = NONE
    places: FrozenSet[Tuple[str, int, int]] = frozenset()


class Facts(NamedTuple):
    """What the values of inputs are used for.

    Those of `decisive` inputs decide how much is computed, or go into an operator that is not known. `rows` are
    those of the smallest table that an input indexes. Of `worked_out` inputs an index is computed, or they index what
    has no known number of rows. `batch_at` is the dimension that the graph takes for the batch, None if it takes none.
    """

    decisive: Set[str]
    rows: Dict[str, int]
    worked_out: Set[str]
    batch_at: Dict[str, Optional[int]]


NOTHING = Value()
UNKNOWN = Facts(set(), {}, set(), {})
FEW = 1000  # numbers of a constant that are looked at
SHAPES_ALONE = {"Shape", "Size"}
CONSTANTS_TOO = {"Cast", "CastLike", "Identity", "Dropout", "DequantizeLinear"}
"""Operators that leave a table a table."""
FIRST = {
    "Cast", "CastLike", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Expand", "Tile", "Dropout",
    "Abs", "Relu", "Clip", "Mod", "BitwiseAnd", "Slice", "Split", "SplitToSequence", "SequenceAt", "Transpose",
    "Gather", "GatherElements", "GatherND", "Pad", "Compress",
}  # fmt: skip
"""Operators that give numbers of their first operand, or some of them, such as a column for each table."""
JOINING = {"Concat", "ConcatFromSequence", "SequenceConstruct", "Max", "Min"}
BOUNDING = {"Mod", "BitwiseAnd", "Clip"}
ARITHMETIC = {"Add", "Sub", "Mul", "Div"}
ONE_BY_ONE = ARITHMETIC | JOINING | BOUNDING | {
    "Cast", "CastLike", "Identity", "Dropout", "Abs", "Relu", "Floor", "Ceil", "Ceiling", "Round", "Where", "Neg",
    "Negative", "Exp", "Log", "Sqrt", "Pow", "Power", "Sigmoid", "Tanh", "Bucketize",
}  # fmt: skip
"""Operators that work out each number of theirs from one of each operand, and leave dimensions where they are."""
BATCH_AT = {
    "LSTM": 1, "GRU": 1, "RNN": 1, "LSTMSequence": 0, "GRUSequence": 0, "RNNSequence": 0,
    "Conv": 0, "MaxPool": 0, "AveragePool": 0, "Convolution": 0, "AvgPool": 0,
}  # fmt: skip
"""The dimension of their first operand that operators take for the batch."""
LOOKUPS = {
    "Gather": ((0, 1),), "GatherBlockQuantized": ((0, 1),),
    "EmbeddingBag": ((0, 1),),
    **dict.fromkeys(("EmbedLayerNormalization", "QEmbedLayerNormalization"), ((2, 0), (4, 1), (3, 8))),
}  # fmt: skip
"""Operators that read rows of tables: where each table stands among their operands, and where its indices do."""
PLACING = {"GatherElements", "GatherND", "ScatterElements", "ScatterND", "Scatter"}
"""Operators whose second operand are places in the first."""
_PLAIN_NAMES = """
Abs Acos Acosh Add AddN And ArgMax ArgMin Asin Asinh Atan Atan2 Atanh Attention AveragePool BatchNormalization
Bernoulli BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil Celu Clip Concat
ConcatFromSequence Constant Conv ConvInteger ConvTranspose Cos Cosh CumProd CumSum DeformConv DepthToSpace
DequantizeLinear Det Div Dropout DynamicQuantizeLinear Einsum Elu Equal Erf Exp EyeLike Flatten Floor Gelu Gemm
GlobalAveragePool GlobalLpPool GlobalMaxPool Greater GreaterOrEqual GridSample GroupNormalization HardSigmoid
HardSwish Hardmax Identity InstanceNormalization IsInf IsNaN LRN LayerNormalization LeakyRelu Less LessOrEqual Log
LogSoftmax LpNormalization LpPool MatMul MatMulInteger Max MaxPool Mean MeanVarianceNormalization Min CropAndResize
Mish Mod Mul Multinomial Neg Not Or PRelu Pow QLinearConv QLinearMatMul QuantizeLinear RMSNormalization
RandomNormal RandomNormalLike RandomUniform RandomUniformLike Reciprocal ReduceL1 ReduceL2 ReduceLogSum
ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape ReverseSequence
RotaryEmbedding Round Scan Selu SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert
SequenceLength Shrink Sigmoid Sign Sin Sinh Softmax Softplus Softsign SpaceToDepth Sqrt Squeeze Sub Sum Swish Tan
Tanh TensorScatter ThresholdedRelu Transpose Trilu Unsqueeze Where Xor

ArrayFeatureExtractor Binarizer FeatureVectorizer Imputer LinearClassifier LinearRegressor Normalizer OneHotEncoder
SVMClassifier SVMRegressor Scaler ZipMap

BiasAdd BiasGelu BiasSoftmax BiasSplitGelu DecoderMaskedMultiHeadAttention DequantizeWithOrder
DynamicQuantizeLSTM DynamicQuantizeMatMul FastGelu FusedConv FusedGemm FusedMatMul FusedMatMulActivation
GatedRelativePositionBias GroupNorm GroupQueryAttention Inverse Irfft MatMulBnb4 MatMulFpQ4 MatMulInteger16
MatMulIntegerToFloat MatMulNBits MultiHeadAttention NhwcConv NhwcFusedConv NhwcMaxPool QAttention QGemm QLinearAdd
QLinearAveragePool QLinearConcat QLinearGlobalAveragePool QLinearLeakyRelu QLinearMul QLinearReduceMean
QLinearSigmoid QLinearSoftmax QLinearWhere QuickGelu RelativePositionBias ReorderInput ReorderOutput Rfft
SimplifiedLayerNormalization SkipGroupNorm SkipLayerNormalization SkipSimplifiedLayerNormalization TransposeMatMul

AdaptiveAvgPool AdaptiveMaxPool AvgPool BatchNormInference BatchToSpace Bucketize Ceiling ConvertPromoteTypes
Convolution ConvolutionBackpropData ExtractImagePatches Eye GreaterEqual LessEqual ScatterUpdate TensorIterator
DeformableConvolution FakeConvert FakeQuantize GRUCell GroupConvolution GroupConvolutionBackpropData HSigmoid
HSwish Inverse IRDFT LSTMCell LogicalAnd LogicalNot LogicalOr LogicalXor MVN Negative NormalizeL2 NotEqual
Parameter Power PriorBox PriorBoxClustered RDFT RMS RNNCell ReadValue ReduceLogicalAnd
ReduceLogicalOr RegionYolo ReorgYolo Result Reverse RoPE Roll ScaledDotProductAttention SearchSorted
ShuffleChannels SoftPlus SoftSign SpaceToBatch SquaredDifference Assign
"""
PLAIN = {*_PLAIN_NAMES.split()}
"""Operators that do the same work whatever the values are: of the standard, of ONNX Runtime, and of OpenVINO."""
DECIDING = {
    "NonZero": (0,), "Unique": (0,), "ConstantOfShape": (0,), "StringSplit": (0,), "If": (0,), "Loop": (0, 1),
    "Range": (0, 1, 2), "NonMaxSuppression": (0, 1, 2, 3, 4), "Slice": (1, 2), "Resize": (1, 2, 3), "Upsample": (1,),
    "Expand": (1,), "Tile": (1,), "Pad": (1,), "TopK": (1,), "OneHot": (1,), "Compress": (1,), "CenterCropPad": (1,),
    "LSTM": (4,), "GRU": (4,), "RNN": (4,), "Split": (1,), "SplitToSequence": (1,), "STFT": (1, 3), "MaxUnpool": (2,),
    "HannWindow": (0,), "HammingWindow": (0,), "BlackmanWindow": (0,), "EmbeddingBag": (2,), "Col2Im": (1,),
    "DFT": (1,), "MelWeightMatrix": (0, 1), "AffineGrid": (1,), "LSTMSequence": (3,),
    "GRUSequence": (2,), "RNNSequence": (2,), "Reshape": (1,),
    **dict.fromkeys(("RoiAlign", "MaxRoiPool", "ROIAlign", "ROIPooling"), (1,)),  # the size of each box
    **dict.fromkeys(("TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor"), (0,)),
    **dict.fromkeys(("BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"), (0, 1, 2, 3, 4)),
    "Attention": (6,), "GroupQueryAttention": (5, 6), "DecoderMaskedMultiHeadAttention": (7,),
}  # fmt: skip
"""Operators whose work has a size that values decide, or that run as often, and the places of these values."""
KNOWN = PLAIN.union(SHAPES_ALONE, FIRST, JOINING, BOUNDING, ARITHMETIC, LOOKUPS, PLACING, DECIDING)


class Usage:
    """What has been seen of a graph so far."""

    def __init__(self, fractional: Iterable[str] = ()) -> None:
        """Begin a walk; `fractional` are the inputs of floating-point numbers."""
        self.decisive: Set[str] = set()
        self.batch_at: Dict[str, Optional[int]] = {}
        self._fractional = frozenset(fractional)
        self._computed: Set[str] = set()
        self._rows: Dict[str, int] = {}
        self._most_rows: Dict[str, int] = {}

    @property
    def facts(self) -> Facts:
        """Return what the values of the inputs are used for."""
        uneven = {name for name, rows in self._rows.items() if rows < self._most_rows[name]}  # few rows are cached
        return Facts(self.decisive | uneven, self._rows, self._computed - {*self._rows}, self.batch_at)

    def see(
        self,
        operator: str,
        operands: Sequence[Value],
        *,
        axis: int = 0,
        perm: Optional[Sequence[int]] = None,
        is_batch_first: bool = False,
    ) -> Value:
        """Take note of what an operator does, and return its result.

        `axis` is the dimension that it looks values up in, and `perm` the order that it gives dimensions, or those that
        it adds. A recurrent operator tells whether it `is_batch_first`.
        """
        if operator in BATCH_AT:
            self.take_batch(operands[:1], 0 if is_batch_first else BATCH_AT[operator])
        for table, index in LOOKUPS.get(operator, ()):
            if index < len(operands):
                self._look_up(operands[table], operands[index], axis)
        if operator in PLACING:
            self.pass_by(operands[1:2])
        for place in DECIDING.get(operator, ()):
            if place < len(operands):
                self.decisive |= operands[place].depends
        if operator not in KNOWN:
            self.decisive.update(*(each.depends for each in operands))
        return NOTHING if operator in SHAPES_ALONE else _made(operator, operands, perm)

    def pass_by(self, operands: Sequence[Value]) -> None:
        """Take note of what an operator may use as indices whose inside is not known."""
        indices = (each.depends - each.bounded - self._fractional for each in operands)
        self._computed = self._computed.union(*indices)

    def take_batch(self, operands: Sequence[Value], place: Optional[int]) -> None:
        """Take note of the dimension that an operator takes for the batch, None if it takes the first for another."""
        for name, dimension, now in NOTHING.places.union(*(each.places for each in operands)):
            if now == place:
                self.batch_at[name] = dimension
            elif dimension == 0 and (now == 0 or place is not None):
                self.batch_at.setdefault(name, None)

    def _look_up(self, table: Value, index: Value, axis: int) -> None:
        if not -len(table.dims) <= axis < len(table.dims):  # no constant
            self.pass_by([index])
            return
        starts = sorted(set(index.numbers)) if index.same and index.numbers else [0]
        sizes = [end - start for start, end in zip(starts, [*starts[1:], table.dims[axis]])]
        fitting = index.same | index.bounded if min(sizes) > 0 else NONE
        fitting -= self._fractional - index.same  # a part of [0, 1) gives few rows
        for name in fitting:
            self._rows[name] = min(*sizes, self._rows.get(name, max(sizes)))
            self._most_rows[name] = max(*sizes, self._most_rows.get(name, 0))
        self._computed |= index.depends - fitting - (self._fractional - index.near)


def _made(operator: str, operands: Sequence[Value], perm: Optional[Sequence[int]]) -> Value:
    """Return what an operator makes of its operands."""
    depends = NONE.union(*(each.depends for each in operands))
    if not operands:
        return NOTHING
    given = operands
    operands = [each._replace(same=NONE) if each.numbers else each for each in given]  # the sum is another number
    first, same, bounded = given[0], NONE, NONE
    dims: Tuple[int, ...] = ()
    numbers: Tuple[int, ...] = ()
    if operator in FIRST:
        same, bounded, numbers = first.same, first.bounded, first.numbers
    elif operator == "Where":  # it chooses what is possible: where(i < 0, i + n, i)
        same, bounded = (NONE.union(*(getattr(each, name) for each in operands[1:])) for name in ("same", "bounded"))
    elif operator in JOINING or operator in ARITHMETIC:
        fitting = [each.bounded if operator in ARITHMETIC else each.same | each.bounded for each in operands]
        unknown = NONE.union(*(each.depends - known for each, known in zip(operands, fitting)))
        bounded = NONE.union(*(each.bounded for each in operands)) - unknown
        same = NONE if operator in ARITHMETIC else NONE.union(*(each.same for each in operands)) - unknown
        for each, constant in zip(operands, given[::-1]) if operator == "Add" else ():
            if each.same and not each.bounded and constant.numbers and not constant.depends:
                same, numbers = each.same, constant.numbers
    if operator in BOUNDING:
        bounded = depends
    if operator in CONSTANTS_TOO:
        dims = first.dims
    elif operator == "Transpose" and first.dims:
        dims = tuple(first.dims[n] for n in (perm or range(len(first.dims))[::-1]))
    near = NONE.union(*(each.near for each in given)) if operator in ONE_BY_ONE else NONE
    near |= first.near if operator in FIRST else NONE
    return Value(depends, same, bounded, dims, numbers, near, _placed(operator, given, perm))


def _placed(operator: str, operands: Sequence[Value], perm: Optional[Sequence[int]]) -> FrozenSet[Tuple[str, int, int]]:
    """Return where the dimensions of inputs stand in what an operator makes."""
    first = operands[0].places
    order = [*(perm or (operands[1].numbers if len(operands) > 1 else ()))]
    if operator in ONE_BY_ONE:
        return first.union(*(each.places for each in operands))
    if operator in ("MatMul", "LayerNormalization", "BatchNormalization"):
        return first
    if operator == "Gather" and not operands[0].depends:  # of a table
        return operands[1].places
    if operator == "Transpose":
        return frozenset((name, n, order.index(now)) for name, n, now in first if now in order)
    if operator == "Unsqueeze" and min(order, default=-1) >= 0:
        for added in sorted(order):
            first = frozenset((name, n, now + (now >= added)) for name, n, now in first)
        return first
    return NOTHING.places


def of_one_item(inputs: Mapping[str, Optional[Sequence[Any]]], outputs: Iterable[Optional[Sequence[Any]]]) -> List[str]:
    """Return the inputs of a model that have no batch as the outputs show, whose shapes have no open dimension.

    A batch of 17 gives outputs of 17 items or of a multiple of it, and (17) to (6) or to (1, 17) is one item.
    """
    sizes = {shape[0] if shape else None for shape in inputs.values() if shape != []}
    size = sizes.pop() if len(sizes) == 1 else None
    shown = [[0] if shape is None else shape for shape in outputs if shape != []]
    if not isinstance(size, int) or size < 2 or not all(isinstance(n, int) for shape in shown for n in shape):
        return []
    # A batch may be of boxes that lie behind each other: 8 images give (1, 1, 1600, 7).
    is_one = shown and all(
        all(n % size for n in shape) or (shape[0] == 1 and all(n == size or n % size for n in shape)) for shape in shown
    )
    return [name for name, shape in inputs.items() if shape] if is_one else []


def given_value(name: str) -> Value:
    """Return what is known of an input of a model."""
    named = frozenset([name])
    return Value(named, named, near=named, places=frozenset((name, n, n) for n in (0, 1)))
