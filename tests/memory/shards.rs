//! What a queue with many shards keeps after a burst (C10).

use std::sync::Arc;

use crate::common::alone;
use crate::common::timed::{built, secs};
use crate::million;
use rig::heap::held;

/// The idle keys that are kept in all.
const RESIDENTS: usize = 8192;
/// Bytes of a shard that keeps a key: a page, and its table.
const SHARD: usize = 4096 + 512;

#[test] // C10
fn a_burst_is_forgotten_by_normal_use_however_many_shards_there_are() {
    alone(|| {
        for shards in [2, 64, 1024, 4096, 16_384, 65_536] {
            for burst in [100_000, million()] {
                let before = held();
                let (queue, time) = built(|builder| builder.shards(shards));
                let shared = Arc::new(());
                let empty = held() - before;
                for key in 0..burst {
                    queue.add((key, Arc::clone(&shared)));
                }
                (0..burst).for_each(|_| queue.try_get().unwrap().done());
                // A worker that looks for more work, now and then.
                for _ in 0..5 {
                    time.advance(secs(60));
                    assert!(queue.try_get().is_err());
                }
                let keys = Arc::strong_count(&shared) - 1;
                let bytes = held() - before;
                println!(
                    "{shards} shards: {keys} of {burst} keys and {bytes} bytes are kept, empty {empty}"
                );
                // One key in each shard, if these are more.
                let most = RESIDENTS.max(shards);
                assert!(keys <= most, "{keys} of {burst} keys in {shards} shards");
                let cache =
                    2 * empty + (shards.min(keys) * SHARD + 4 * RESIDENTS * 64).cast_signed();
                assert!(
                    bytes <= cache,
                    "{bytes} bytes, not {cache}, in {shards} shards"
                );
            }
        }
    });
}
