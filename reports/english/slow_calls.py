"""What makes calls of libraries cheaper that are slow in one known way."""

from collections.abc import Mapping

# By kinds as ``knowledge.slow_calls`` has them.
CHEAPER_CALLS: Mapping[str, str] = {
    "drawn": "Draw from a list, a tensor or an array: a deque goes through its items to find one by its number. A list "
    "of fixed length in which the oldest item is replaced (items[count % capacity] = item) holds the same. All numbers "
    "of a batch come from one call: torch.randint(len(items), (batch_size,)).",
    "sparse parts": "Keep the matrix by what is taken of it: tocsr() for rows, tocsc() for columns, once. The other "
    "way round all of its numbers are gone through for each part. The transpose of a csr matrix is csc.",
    "convolved": "A filter that is a product of two (Gaussian, mean, binomial) goes in two passes along one axis each, "
    "with convolve1d: 2 n products for each pixel instead of n * n. A large one is cheaper by FFT "
    "(scipy.signal.fftconvolve).",
    "interpolated": "Cut the piece out that is needed, with a margin, and transform only that. order=1 reads 2 values "
    "along each axis, where order=3, which is set unless said otherwise, reads 4 and filters all of the input before.",
    "unpacked": "An entry of an .npz file is read and unpacked each time it is asked for. Take the arrays out of it "
    "once, arrays = dict(numpy.load(path)), or keep each in a .npy file: numpy.load(path, mmap_mode='r') reads only "
    "what is used.",
    "yaml": "yaml.load(file, Loader=yaml.CSafeLoader) parses in C. Parse again only if the file has changed "
    "(os.stat(path).st_mtime_ns).",
    "json": "Parse once, and keep the numbers in arrays (numpy.save) or the samples in Arrow or Parquet; orjson.loads "
    "parses the same text several times as fast.",
    "copied": "Copy only what changes: array.copy(), list(rows), or a copy method that knows which parts may be "
    "shared. deepcopy goes through all objects one by one, in Python.",
    "quantiles": "Compute them once for each sample and keep them, or of a part of its numbers (values[::16]). Ask for "
    "several in one call: numpy.percentile(values, [1, 99]).",
    "frames": "Go through the frames in their order, each once, and turn the list round afterwards: to go back, all of "
    "them are decoded again from the first one. Or decode each file once, into an array on disk.",
    "holidays": "Compute the holidays of all years once, and look dates up: dates.isin(holidays).",
    "vocabulary": "Each access makes a dict of all words. Keep it in a name of its own, or use len(tokenizer) and "
    "convert_tokens_to_ids.",
    "row groups": "A row group is read and decoded whole, whatever is used of it. Shuffle the groups, and the rows "
    "within a few of them that are kept, or write smaller ones (row_group_size).",
}
