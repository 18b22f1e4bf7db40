//! The bucket: one version of each record, one revision for all of them.

use std::collections::BTreeMap;

use crate::ownership::{Key, Revision, Value, WriteEnd};

/// A record as it is shown to a member; no value: a delete marker.
pub(super) type Record = (Option<Value>, Revision);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Bucket {
    pub(super) records: BTreeMap<Key, Record>,
    pub(super) last: Revision,
}

impl Bucket {
    pub(super) fn get(&self, key: &Key) -> Record {
        self.records.get(key).cloned().unwrap_or((None, 0))
    }

    /// A compare-and-set.
    pub(super) fn write(&mut self, key: Key, value: Option<Value>, expect: Revision) -> WriteEnd {
        if self.get(&key).1 != expect {
            return WriteEnd::Conflict;
        }
        self.last += 1;
        self.records.insert(key, (value, self.last));
        WriteEnd::Written(self.last)
    }

    /// What a watcher shows next that has shown everything up to this revision.
    pub(super) fn after(&self, shown: Revision) -> Option<(Key, Record)> {
        let newer = self.records.iter().filter(|(_, record)| record.1 > shown);
        let next = newer.min_by_key(|(_, record)| record.1);
        next.map(|(key, record)| (key.clone(), record.clone()))
    }
}
