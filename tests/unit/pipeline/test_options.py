"""Options of the data source: defaults, limits, contradictions, and errors that name the option."""

import pytest

from sluice.pipeline.errors import PipelineOptionError
from sluice.pipeline.options import OptionReader, SourceOptions, number, octets, source_options


def options(stream: bool | None = None, **given: str) -> SourceOptions:
    return source_options({"path": "/landing", **given}, stream=stream)


def test_unknown_option_is_refused_with_nearest_name():
    with pytest.raises(PipelineOptionError, match=r"option 'subscirbe': there is no such option \(is it subscribe\?\)"):
        options(subscirbe="a")
    with pytest.raises(PipelineOptionError, match=r"option 'zzz': there is no such option$"):
        options(zzz="a")


def test_option_names_ignore_case_as_in_spark():
    assert options(FAILONDATALOSS="False").fail_on_loss is False


def test_source_without_path_is_refused():
    with pytest.raises(PipelineOptionError, match="option path is required"):
        source_options({})


def test_relative_path_becomes_absolute_and_url_is_kept(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert source_options({"path": "landing"}).path == str(tmp_path / "landing")
    assert source_options({"path": "s3://bucket/landing"}).path == "s3://bucket/landing"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"subscribe": "a,,b"}, "option subscribe: 'a,,b' has an empty name"),
        ({"subscribePattern": "("}, r"option subscribePattern: '\(' is not a regular expression: "),
        ({"failOnDataLoss": "yes"}, "option failOnDataLoss: 'yes' is neither true nor false"),
        ({"minPartitions": "0"}, "option minPartitions: '0' is not a whole number of 1 or more"),
        ({"maxRecordsPerTrigger": "1" * 19}, "option maxRecordsPerTrigger: '1+' is not a whole number"),
        ({"maxBytesPerTrigger": "0"}, "option maxBytesPerTrigger: '0' is not a size"),
        ({"retentionMinutes": "-1"}, "option retentionMinutes: '-1' is not a number of 0 or more"),
        ({"retentionMinutes": "nan"}, "option retentionMinutes: 'nan' is not a number"),
        ({"group": "../x"}, r"option group: '../x': expected letters"),
        ({"decode": "none"}, "option decode: 'none' is not one of raw, body, full"),
        ({"startingOffsets": "7"}, "option startingOffsets: '7': expected earliest, latest or JSON"),
        ({"startingOffsets": '{"l/a": -1}'}, r"option startingOffsets: -1 is not a segment number \(log l/a\)"),
        ({"startingOffsets": '{"l/a": true}'}, "option startingOffsets: True is not a segment number"),
        ({"startingOffsets": '{"a": 1}'}, "option startingOffsets: .*is not a log"),
        ({"startingTimestamp": "yesterday"}, "option startingTimestamp: 'yesterday' is not a time: expected ms since"),
        ({"endingTimestamp": "2026-01-31T08:00:00"}, "option endingTimestamp: '2026-01-31T08:00:00' is not a time"),
        ({"startingOffsetsByTimestamp": "[1]"}, r"option startingOffsetsByTimestamp: '\[1\]': expected JSON like"),
        ({"startingOffsetsByTimestamp": '{"a": true}'}, "option startingOffsetsByTimestamp: True is not a time"),
        ({"endingOffsetsByTimestamp": '{"a": -1}'}, "option endingOffsetsByTimestamp: -1 is before 1970"),
        ({"maxTriggerDelay": "1 day"}, "option maxTriggerDelay: '1 day' is not a time: expected for example 30s"),
        ({"columns": "body,,to"}, "option columns: 'body,,to' has an empty name"),
        ({"columns": "body, body"}, "option columns: 'body, body' has a name twice"),
        ({"minOffsetsPerTrigger": "0"}, "option minOffsetsPerTrigger: '0' is not a whole number of 1 or more"),
    ],
)
def test_wrong_value_is_refused_with_name_of_option(given, text):
    with pytest.raises(PipelineOptionError, match=text):
        options(**given)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"subscribe": "a", "subscribePattern": "b"}, "options subscribe and subscribePattern: only one"),
        ({"startingOffsets": "earliest", "startingTimestamp": "1"}, "only one of them can be given"),
        ({"maxRecordsPerTrigger": "1", "maxOffsetsPerTrigger": "1"}, "only one of them can be given"),
        ({"minRecordsPerTrigger": "1", "minOffsetsPerTrigger": "1"}, "only one of them can be given"),
        ({"startingOffsetsByTimestamp": "{}", "startingTimestamp": "1"}, "only one of them can be given"),
        ({"endingOffsetsByTimestamp": "{}", "endingTimestamp": "1"}, "only one of them can be given"),
        ({"includeHeaders": "true"}, "option includeHeaders needs decode=full"),
        ({"endingOffsets": "earliest"}, "option endingOffsets cannot be earliest"),
    ],
)
def test_contradicting_options_are_refused(given, text):
    with pytest.raises(PipelineOptionError, match=text):
        options(**given)


def test_batch_does_not_begin_at_the_end():
    with pytest.raises(PipelineOptionError, match=r"startingOffsets=latest is for spark\.readStream only"):
        options(stream=False, startingOffsets="latest")
    assert options(stream=True, startingOffsets="Latest").starting == "latest"
    assert options(stream=False, endingOffsets="latest").ending == "latest"


def test_offsets_are_sorted_by_log():
    assert list(options(startingOffsets='{"l/b": 2, "k/a": 0}').starting) == ["k/a", "l/b"]


def test_times_are_converted_to_seconds():
    found = options(retentionMinutes="1.5", holeTimeoutMs="250")
    assert (found.retention, found.patience) == (90.0, 0.25)


def test_landing_times_are_numbers_or_iso_texts():
    found = options(startingTimestamp="2026-01-31T08:00:00.250+02:00", endingTimestamp="1769900000000")
    assert found.starting_times.of("a") == 1769839200250
    assert found.ending_times.of("a") == 1769900000000
    named = options(startingOffsetsByTimestamp='{"a": "2026-01-31T06:00:00Z", "b/c": 5}').starting_times
    assert [named.of(address) for address in ("a", "b/c", "d")] == [1769839200000, 5, None]


def test_delay_of_a_batch_has_a_unit():
    found = [options(maxTriggerDelay=text).delay for text in ("250ms", "30s", "15M", "1h")]
    assert found == [0.25, 30.0, 900.0, 3600.0]


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_stream_has_no_end(name):
    value = {"endingOffsets": "latest", "endingTimestamp": "1", "endingOffsetsByTimestamp": "{}"}[name]
    with pytest.raises(PipelineOptionError, match=rf"option {name} is for spark\.read only"):
        options(stream=True, **{name: value})


def test_sizes_have_binary_units():
    assert [octets(text) for text in ("1", "2k", "3MB", "4g")] == [1, 2 << 10, 3 << 20, 4 << 30]
    assert number(0)("0") == 0


def test_source_wants_subscribed_or_matching_addresses():
    listed, matching, everything = options(subscribe="a, b"), options(subscribePattern="a.*"), options()
    assert [listed.wants(address) for address in ("a", "b", "ab")] == [True, True, False]
    assert [matching.wants(address) for address in ("a", "b", "ab", "ba")] == [True, False, True, False]
    assert everything.wants("anything")


def test_reader_lists_given_options_in_their_spelling():
    reader = OptionReader({"idcolumn": "x"}, ("idColumn", "address"))
    assert reader.given("idColumn", "address") == ["idColumn"]
    reader.one_of("idColumn", "address")


#: Options that Spark 4.3 gives a source for CREATE TABLE … USING amqp OPTIONS (…) TBLPROPERTIES ('quality'='gold').
OF_TABLE = {
    "location": "file:/landing", "option.decode": "full", "decode": "full", "owner": "root", "path": "file:/landing",
    "provider": "amqp", "comment": "x", "quality": "gold",
}  # fmt: skip


def test_options_of_a_table_have_properties_of_the_catalog():
    found = source_options(OF_TABLE)
    assert (found.path, found.decode) == ("/landing", "full")
    with pytest.raises(PipelineOptionError, match=r"option 'subscirbe': there is no such option \(is it subscribe\?\)"):
        source_options({**OF_TABLE, "subscirbe": "a"})


def test_path_comes_from_a_list_of_one():
    assert source_options({"paths": '["/landing"]'}).path == "/landing"
    for paths in ('["/a", "/b"]', "[]", "x"):
        with pytest.raises(PipelineOptionError, match="option path: one landing folder is expected"):
            source_options({"paths": paths})
