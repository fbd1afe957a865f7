//! Rows of files of Apache Parquet as JSON objects, read by the crate `parquet`.
//!
//! | type | JSON |
//! | --- | --- |
//! | integers, decimals | a number with all of its digits |
//! | floating-point numbers | a number; null for infinity and NaN |
//! | text, enumerations, JSON | a string |
//! | other bytes | a string in base64 |
//! | dates, times, timestamps | a string in the format of ISO 8601; timestamps in UTC end with `Z` |
//! | lists, maps, groups | an array or an object |
//!
//! *Invariant:* types that the crate would panic on are refused before a row is read.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use parquet::basic::{ConvertedType, LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::data_type::Decimal;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use parquet::schema::types::Type;
use std::collections::BTreeSet;

/// Maximum nesting of lists and groups. A list counts as two levels.
const DEPTH_MAX: usize = 64;

/// Calls `each` with the document of every row (JSON text), or the reason why the row has none, until it returns false.
///
/// # Errors
/// A sentence if the file cannot be read; errors of `each`.
pub(crate) fn read_parquet(
    name: &str,
    input: impl ChunkReader + 'static,
    each: &mut dyn FnMut(Result<String, String>) -> Result<bool, String>,
) -> Result<(), String> {
    let cannot = |error: ParquetError| format!("{name} is not a Parquet file: {error}");
    let reader = SerializedFileReader::new(input).map_err(cannot)?;
    let schema = reader.metadata().file_metadata().schema_descr().root_schema_ptr();
    check(&schema, 0).map_err(|reason| format!("{name} cannot be read: {reason}"))?;
    for row in reader.get_row_iter(None).map_err(cannot)? {
        // The rows after a damaged page cannot be found.
        let row = row.map_err(|error| format!("{name} is damaged: {error}"))?;
        let mut document = String::new();
        let written = write_row(&mut document, &row, Some(&schema));
        if !each(written.map(|()| document))? {
            break;
        }
    }
    Ok(())
}

/// Checks that a type can be read.
fn check(kind: &Type, depth: usize) -> Result<(), String> {
    let name = kind.name();
    if depth > DEPTH_MAX {
        return Err(format!("{name} nests deeper than {DEPTH_MAX} levels"));
    }
    if kind.is_primitive() {
        let (physical, converted) =
            (kind.get_physical_type(), kind.get_basic_info().converted_type());
        return match is_known(physical, converted) {
            true => Ok(()),
            false => Err(format!("the column {name} is {converted} as {physical}")),
        };
    }
    let fields = kind.get_fields();
    let names: BTreeSet<&str> = fields.iter().map(|field| field.name()).collect();
    if fields.is_empty() || names.len() != fields.len() {
        return Err(format!("{name} has no columns, or two of one name"));
    }
    let is_repeated = |field: &Type| field.get_basic_info().repetition() == Repetition::REPEATED;
    // The root has no repetition and is not a list.
    let converted = kind.get_basic_info().converted_type();
    let is_well_formed = match converted {
        _ if depth == 0 => true,
        ConvertedType::LIST => fields.len() == 1 && is_repeated(&fields[0]),
        ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE => {
            fields.len() == 1
                && is_repeated(&fields[0])
                && !fields[0].is_primitive()
                && fields[0].get_fields().len() <= 2
        }
        _ => true,
    };
    if !is_well_formed {
        return Err(format!("{name} is a malformed {converted}"));
    }
    fields.iter().try_for_each(|field| check(field, depth + 1))
}

/// Returns true for the combinations of types that values are converted from.
fn is_known(physical: Physical, converted: ConvertedType) -> bool {
    use ConvertedType as C;
    match physical {
        Physical::BOOLEAN | Physical::INT96 | Physical::FLOAT | Physical::DOUBLE => true,
        Physical::INT32 => matches!(
            converted,
            C::NONE
                | C::INT_8
                | C::INT_16
                | C::INT_32
                | C::UINT_8
                | C::UINT_16
                | C::UINT_32
                | C::DATE
                | C::TIME_MILLIS
                | C::DECIMAL
        ),
        Physical::INT64 => matches!(
            converted,
            C::NONE
                | C::INT_64
                | C::UINT_64
                | C::TIME_MICROS
                | C::TIMESTAMP_MILLIS
                | C::TIMESTAMP_MICROS
                | C::DECIMAL
        ),
        Physical::BYTE_ARRAY => {
            matches!(converted, C::NONE | C::UTF8 | C::ENUM | C::JSON | C::BSON | C::DECIMAL)
        }
        Physical::FIXED_LEN_BYTE_ARRAY => matches!(converted, C::NONE | C::DECIMAL),
    }
}

/// Appends an object. `kind` is its type, if known.
fn write_row(output: &mut String, row: &Row, kind: Option<&Type>) -> Result<(), String> {
    output.push('{');
    for (at, (name, field)) in row.get_column_iter().enumerate() {
        if at > 0 {
            output.push(',');
        }
        write_text(output, name);
        output.push(':');
        let kinds = kind.filter(|kind| !kind.is_primitive()).map(Type::get_fields);
        let kind = kinds.and_then(|kinds| kinds.iter().find(|kind| kind.name() == name));
        write_field(output, field, kind.map(|kind| &**kind))
            .map_err(|reason| format!("the column {name}: {reason}"))?;
    }
    output.push('}');
    Ok(())
}

fn write_text(output: &mut String, text: &str) {
    output.push_str(&serde_json::to_string(text).expect("text is JSON"));
}

fn write_float(output: &mut String, number: f64) {
    // The shortest text that gives the same number.
    let text = serde_json::Number::from_f64(number).map(|number| number.to_string());
    output.push_str(text.as_deref().unwrap_or("null"));
}

/// Appends a value.
fn write_field(output: &mut String, field: &Field, kind: Option<&Type>) -> Result<(), String> {
    let logical = kind.and_then(|kind| kind.get_basic_info().logical_type_ref());
    match field {
        Field::Null => output.push_str("null"),
        Field::Long(number) => match logical {
            Some(LogicalType::Timestamp(of)) if matches!(of.unit, TimeUnit::NANOS) => {
                write_text(output, &moment(Timestamp::from_nanosecond((*number).into()), logical)?);
            }
            _ => output.push_str(&number.to_string()),
        },
        Field::Bool(_)
        | Field::Byte(_)
        | Field::Short(_)
        | Field::Int(_)
        | Field::UByte(_)
        | Field::UShort(_)
        | Field::UInt(_)
        | Field::ULong(_) => output.push_str(&field.to_string()),
        Field::Float16(number) => write_float(output, f64::from(*number)),
        // The shortest digits of the 32-bit number: 0.1, and not 0.10000000149011612.
        Field::Float(number) => write_float(output, number.to_string().parse().unwrap_or(f64::NAN)),
        Field::Double(number) => write_float(output, *number),
        Field::Decimal(decimal) => output.push_str(&digits(decimal)?),
        Field::Str(text) => write_text(output, text),
        Field::Bytes(bytes) => match (logical, std::str::from_utf8(bytes.data())) {
            (Some(LogicalType::String | LogicalType::Enum | LogicalType::Json), Ok(text)) => {
                write_text(output, text);
            }
            _ => write_text(output, &STANDARD.encode(bytes.data())),
        },
        Field::Date(days) => write_text(output, &date(*days)?),
        Field::TimeMillis(ms) => write_text(output, &time(i64::from(*ms) * 1000)?),
        Field::TimeMicros(us) => write_text(output, &time(*us)?),
        Field::TimestampMillis(ms) => {
            write_text(output, &moment(Timestamp::from_millisecond(*ms), logical)?);
        }
        Field::TimestampMicros(us) => {
            write_text(output, &moment(Timestamp::from_microsecond(*us), logical)?);
        }
        Field::Group(row) => write_row(output, row, kind)?,
        Field::ListInternal(list) => {
            output.push('[');
            for (at, element) in list.elements().iter().enumerate() {
                if at > 0 {
                    output.push(',');
                }
                write_field(output, element, None)?;
            }
            output.push(']');
        }
        Field::MapInternal(map) => {
            output.push('{');
            for (at, (key, value)) in map.entries().iter().enumerate() {
                if at > 0 {
                    output.push(',');
                }
                match key {
                    Field::Str(text) => write_text(output, text),
                    key => {
                        let mut text = String::new();
                        write_field(&mut text, key, None)?;
                        write_text(output, text.trim_matches('"'));
                    }
                }
                output.push(':');
                write_field(output, value, None)?;
            }
            output.push('}');
        }
    }
    Ok(())
}

/// `2026-11-28T12:00:00Z`; without `Z` if the file declares the time as local.
fn moment(
    timestamp: Result<Timestamp, jiff::Error>,
    logical: Option<&LogicalType>,
) -> Result<String, String> {
    let text = timestamp.map_err(|error| error.to_string())?.to_string();
    match logical {
        Some(LogicalType::Timestamp(of)) if !of.is_adjusted_to_u_t_c => {
            Ok(text.trim_end_matches('Z').to_owned())
        }
        _ => Ok(text),
    }
}

/// `2026-11-28`, of a number of days since 1970.
fn date(days: i32) -> Result<String, String> {
    let timestamp = Timestamp::from_second(i64::from(days) * 24 * 60 * 60);
    let text = timestamp.map_err(|error| error.to_string())?.to_string();
    Ok(text.split('T').next().unwrap_or_default().to_owned())
}

/// `12:00:00`, of a number of microseconds since midnight.
fn time(micros: i64) -> Result<String, String> {
    let timestamp = Timestamp::from_microsecond(micros).map_err(|error| error.to_string())?;
    let text = timestamp.to_string();
    match text.strip_prefix("1970-01-01T") {
        Some(text) => Ok(text.trim_end_matches('Z').to_owned()),
        None => Err(format!("{micros} microseconds are no time of a day")),
    }
}

/// `-12.30`.
fn digits(decimal: &Decimal) -> Result<String, String> {
    let bytes = decimal.data();
    let (first, scale) = (bytes.first().copied().unwrap_or(0), decimal.scale());
    let fill = if first & 0x80 == 0 { 0 } else { 0xff };
    let skipped = bytes.len().saturating_sub(size_of::<i128>());
    let (above, bytes) = bytes.split_at(skipped);
    let (Ok(scale), true) = (usize::try_from(scale), above.iter().all(|byte| *byte == fill)) else {
        return Err("the decimal number has more than 38 digits".to_owned());
    };
    let mut whole = [fill; size_of::<i128>()];
    whole[size_of::<i128>() - bytes.len()..].copy_from_slice(bytes);
    let number = i128::from_be_bytes(whole);
    if scale > 38 || (skipped > 0 && (number < 0) != (fill == 0xff)) {
        return Err("the decimal number has more than 38 digits".to_owned());
    }
    let sign = if number < 0 { "-" } else { "" };
    let text = format!("{:0>width$}", number.unsigned_abs(), width = scale + 1);
    let (whole, rest) = text.split_at(text.len() - scale);
    Ok(if rest.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{rest}") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use parquet::data_type::{
        BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type,
    };
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
    use parquet::schema::parser::parse_message_type;
    use std::sync::Arc;

    type Group<'a> = SerializedRowGroupWriter<'a, Vec<u8>>;

    /// Writes the values of the next column of one row; `levels` are definition and repetition.
    fn column<T: DataType>(
        group: &mut Group<'_>,
        values: &[T::T],
        (definition, repetition): (&[i16], Option<&[i16]>),
    ) {
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<T>().write_batch(values, Some(definition), repetition).unwrap();
        column.close().unwrap();
    }

    fn file(schema: &str, fill: impl FnOnce(&mut Group<'_>)) -> Vec<u8> {
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let properties = Arc::new(WriterProperties::builder().build());
        let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties).unwrap();
        let mut group = writer.next_row_group().unwrap();
        fill(&mut group);
        group.close().unwrap();
        writer.into_inner().unwrap()
    }

    fn rows(file: Vec<u8>) -> Result<Vec<String>, String> {
        let mut rows = Vec::new();
        read_parquet("file", Bytes::from(file), &mut |row| {
            rows.push(row.unwrap_or_else(|reason| reason));
            Ok(true)
        })?;
        Ok(rows)
    }

    const ONE: (&[i16], Option<&[i16]>) = (&[1], None);

    #[test]
    fn values_have_the_nearest_json() {
        let file = file(
            "message m {
                optional boolean b; optional int32 i; optional int64 u (UINT_64);
                optional float f; optional double d; optional double nan;
                optional int32 price (DECIMAL(9,2)); optional int64 small (DECIMAL(18,18));
                optional binary t (UTF8); optional binary raw;
                optional int32 day (DATE); optional int32 at (TIME_MILLIS);
                optional int64 ms (TIMESTAMP_MILLIS);
                optional int64 us (TIMESTAMP(MICROS,false));
                optional int64 ns (TIMESTAMP(NANOS,true));
                optional int64 none;
            }",
            |group| {
                column::<BoolType>(group, &[true], ONE);
                column::<Int32Type>(group, &[-7], ONE);
                column::<Int64Type>(group, &[-1], ONE);
                column::<FloatType>(group, &[0.1], ONE);
                column::<DoubleType>(group, &[0.1 + 0.2], ONE);
                column::<DoubleType>(group, &[f64::NAN], ONE);
                column::<Int32Type>(group, &[-1230], ONE);
                column::<Int64Type>(group, &[5], ONE);
                column::<ByteArrayType>(group, &[ByteArray::from("a\"\u{e9}")], ONE);
                column::<ByteArrayType>(group, &[ByteArray::from(vec![0xff, 0])], ONE);
                column::<Int32Type>(group, &[20_423], ONE);
                column::<Int32Type>(group, &[45_296_500], ONE);
                column::<Int64Type>(group, &[-1], ONE);
                column::<Int64Type>(group, &[1_764_547_200_000_001], ONE);
                column::<Int64Type>(group, &[1_764_547_200_000_000_001], ONE);
                column::<Int64Type>(group, &[], (&[0], None));
            },
        );
        let rows = rows(file).unwrap();
        assert!(serde_json::from_str::<serde_json::Value>(&rows[0]).is_ok(), "{rows:?}");
        insta::assert_snapshot!(rows.join("\n").replace(",\"", ",\n\""), @r#"
        {"b":true,
        "i":-7,
        "u":18446744073709551615,
        "f":0.1,
        "d":0.30000000000000004,
        "nan":null,
        "price":-12.30,
        "small":0.000000000000000005,
        "t":"a\"é",
        "raw":"/wA=",
        "day":"2025-12-01",
        "at":"12:34:56.5",
        "ms":"1969-12-31T23:59:59.999Z",
        "us":"2025-12-01T00:00:00.000001",
        "ns":"2025-12-01T00:00:00.000000001Z",
        "none":null}
        "#);
    }

    #[test]
    fn lists_maps_and_groups_are_read() {
        let file = file(
            "message m {
                required group g { optional int32 n; }
                optional group l (LIST) { repeated group list { optional int32 element; } }
                optional group m (MAP) { repeated group key_value { required binary key (UTF8); optional int32 value; } }
            }",
            |group| {
                column::<Int32Type>(group, &[1], ONE);
                column::<Int32Type>(group, &[2, 3], (&[3, 2, 3], Some(&[0, 1, 1])));
                let keys = [ByteArray::from("a"), ByteArray::from("b")];
                column::<ByteArrayType>(group, &keys, (&[2, 2], Some(&[0, 1])));
                column::<Int32Type>(group, &[4], (&[3, 2], Some(&[0, 1])));
            },
        );
        assert_eq!(rows(file).unwrap(), [r#"{"g":{"n":1},"l":[2,null,3],"m":{"a":4,"b":null}}"#]);
    }

    #[test]
    fn decimals_have_all_of_their_digits() {
        let text = |bytes: &[u8], scale| {
            digits(&Decimal::from_bytes(ByteArray::from(bytes.to_vec()), 38, scale))
        };
        assert_eq!(text(&[], 2).as_deref(), Ok("0.00"));
        assert_eq!(text(&[0xff], 0).as_deref(), Ok("-1"));
        assert_eq!(text(&[0x80; 1], 3).as_deref(), Ok("-0.128"));
        assert_eq!(text(&[0, 0x80], 1).as_deref(), Ok("12.8"));
        let max = i128::MAX.to_be_bytes();
        assert_eq!(text(&max, 0), Ok(i128::MAX.to_string()));
        assert_eq!(text(&[&[0][..], &max].concat(), 0), Ok(i128::MAX.to_string()));
        for above in [vec![1; 17], [&[0][..], &[0x80; 16]].concat(), vec![0xfe; 20]] {
            assert!(text(&above, 0).is_err(), "{above:?}");
        }
        assert!(text(&[1], -1).is_err() && text(&[1], 39).is_err());
    }

    #[test]
    fn unsupported_columns_are_refused_by_name() {
        let interval =
            file("message m { optional fixed_len_byte_array(12) span (INTERVAL); }", |group| {
                column::<parquet::data_type::FixedLenByteArrayType>(group, &[], (&[0], None))
            });
        let refused = rows(interval).unwrap_err();
        assert!(refused.contains("the column span is INTERVAL"), "{refused}");
        for text in ["", "PAR1", "{\"a\":1}\n", "PAR1\0\0\0\0PAR1"] {
            let refused = rows(text.as_bytes().to_vec()).unwrap_err();
            assert!(refused.starts_with("file is not a Parquet file: "), "{refused}");
        }
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        let whole = file("message m { optional binary t (UTF8); }", |group| {
            let text = ByteArray::from("text".repeat(100).as_str());
            column::<ByteArrayType>(group, &[text], ONE);
        });
        for at in 4..60 {
            let mut changed = whole.clone();
            changed[at] ^= 0xff;
            // Pages have no checksum, so a changed value may go unnoticed; the reader must not panic.
            let _ = rows(changed);
        }
        for length in 0..whole.len() {
            assert!(rows(whole[..length].to_vec()).is_err(), "{length} bytes");
        }
    }
}
