//! What rdkafka does not do as needed here, by calls of librdkafka itself. The only file with `unsafe`.
//!
//! | rdkafka | here |
//! | --- | --- |
//! | `metadata` of an offset panics on what is not UTF-8 | [`metadata`] returns `None` |
//! | a header whose name is not UTF-8 panics | [`headers`] replaces what is not |

use std::ffi::CStr;
use std::ptr;
use std::slice;

use rdkafka::TopicPartitionList;
use rdkafka::bindings::{rd_kafka_header_get_all, rd_kafka_message_headers};
use rdkafka::message::BorrowedMessage;
use rdkafka::types::RDKafkaRespErr;

use crate::record::Header;

/// The metadata of each offset in the list, in its order; `None` if it is not UTF-8.
pub(crate) fn metadata(offsets: &TopicPartitionList) -> Vec<Option<String>> {
    let text = |index| {
        // SAFETY: the list has `count` elements, and their metadata is null or has `metadata_size` bytes.
        let bytes = unsafe {
            let element = &*(*offsets.ptr()).elems.add(index);
            match element.metadata.is_null() {
                true => &[],
                false => {
                    slice::from_raw_parts(element.metadata.cast::<u8>(), element.metadata_size)
                }
            }
        };
        String::from_utf8(bytes.to_vec()).ok()
    };
    (0..offsets.count()).map(text).collect()
}

/// The headers of a message.
pub(crate) fn headers(message: &BorrowedMessage<'_>) -> Box<[Header]> {
    let mut native = ptr::null_mut();
    // SAFETY: the message is valid, and its headers live as long as it does.
    let error = unsafe { rd_kafka_message_headers(message.ptr(), &mut native) };
    if error != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR || native.is_null() {
        return Box::default();
    }
    let header = |index| {
        let (mut name, mut value, mut size) = (ptr::null(), ptr::null(), 0);
        // SAFETY: the headers are valid, and so is what the call returns for an index that they have.
        unsafe {
            let error = rd_kafka_header_get_all(native, index, &mut name, &mut value, &mut size);
            if error != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR {
                return None;
            }
            let name = CStr::from_ptr(name).to_string_lossy().into();
            let value = match value.is_null() {
                true => None,
                false => Some(slice::from_raw_parts(value.cast::<u8>(), size).into()),
            };
            Some((name, value))
        }
    };
    (0..).map_while(header).collect()
}
