//! What rdkafka does not do as needed here, by calls of librdkafka itself. The only file with `unsafe`.
//!
//! | rdkafka | here |
//! | --- | --- |
//! | `commit` in its synchronous mode reports an error only if all partitions failed | [`commit`] returns the result of each |
//! | `metadata` of an offset panics on what is not UTF-8 | [`metadata`] returns `None` |
//! | a header whose name is not UTF-8 panics | [`headers`] replaces what is not |

use std::ffi::{CStr, c_void};
use std::ptr;
use std::slice;

use rdkafka::TopicPartitionList;
use rdkafka::bindings::{
    rd_kafka_commit_queue, rd_kafka_header_get_all, rd_kafka_message_headers,
    rd_kafka_topic_partition_list_t,
};
use rdkafka::client::{Client, ClientContext};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::BorrowedMessage;
use rdkafka::types::{RDKafka, RDKafkaRespErr};

use crate::record::Header;

/// The result for a partition.
pub(crate) type Committed = Result<(), RDKafkaErrorCode>;

/// Commits offsets, waits for the reply, and returns the result of each partition, in the order of the list.
///
/// librdkafka limits the wait: by the time of a request if the coordinator is known, otherwise by the session's.
pub(crate) fn commit<C: ClientContext>(
    client: &Client<C>,
    offsets: &TopicPartitionList,
) -> Vec<Committed> {
    unsafe extern "C" fn each(
        _: *mut RDKafka,
        error: RDKafkaRespErr,
        list: *mut rd_kafka_topic_partition_list_t,
        results: *mut c_void,
    ) {
        // SAFETY: `commit` passes a `Vec` that lives until the call returns, and librdkafka calls this within the call.
        let results = unsafe { &mut *results.cast::<Vec<RDKafkaRespErr>>() };
        // SAFETY: the list is valid during the call, or null.
        let Some(list) = (unsafe { list.as_ref() }) else {
            return results.push(error);
        };
        for index in 0..usize::try_from(list.cnt).unwrap_or(0) {
            // SAFETY: `elems` has `cnt` elements.
            let of_partition = unsafe { (*list.elems.add(index)).err };
            results.push(match error {
                RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR => of_partition,
                error => error,
            });
        }
    }
    let mut results = Vec::<RDKafkaRespErr>::new();
    // SAFETY: the client and the list are valid; without a queue the call returns after the callback.
    let error = unsafe {
        rd_kafka_commit_queue(
            client.native_ptr(),
            offsets.ptr(),
            ptr::null_mut(),
            Some(each),
            ptr::from_mut(&mut results).cast(),
        )
    };
    let committed = |error: RDKafkaRespErr| match error {
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(()),
        error => Err(RDKafkaErrorCode::from(error)),
    };
    if results.len() != offsets.count() {
        // The reply has no partitions.
        return vec![results.first().copied().map_or(committed(error), committed); offsets.count()];
    }
    results.into_iter().map(committed).collect()
}

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
