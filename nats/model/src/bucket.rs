//! The bucket: one version of each record, one revision for all of them. Watchers that lag still
//! show the versions that have been replaced meanwhile.

use std::collections::BTreeMap;

use crate::ownership::{Key, Revision, Value, WriteEnd};

/// A record as it is shown to a member; no value: a delete marker.
pub(super) type Record = (Option<Value>, Revision);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Bucket {
    pub(super) records: BTreeMap<Key, Record>,
    pub(super) last: Revision,
    /// The changes that a watcher has not shown yet, in order.
    changes: Vec<(Key, Record)>,
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
        let record = (value, self.last);
        self.changes.push((key.clone(), record.clone()));
        self.records.insert(key, record);
        WriteEnd::Written(self.last)
    }

    /// What a watcher shows next that has shown everything up to this revision.
    pub(super) fn change_after(&self, shown: Revision) -> Option<&(Key, Record)> {
        self.changes.iter().find(|(_, record)| record.1 > shown)
    }

    /// What a watcher shows next that is at this revision of the snapshot with which it begins.
    pub(super) fn record_after(&self, shown: Revision, last: Revision) -> Option<(Key, Record)> {
        let records = self.records.iter();
        let newer = records.filter(|(_, record)| record.1 > shown && record.1 <= last);
        let next = newer.min_by_key(|(_, record)| record.1);
        next.map(|(key, record)| (key.clone(), record.clone()))
    }

    /// All watchers have shown everything up to this revision.
    pub(super) fn forget(&mut self, shown: Revision) {
        self.changes.retain(|(_, record)| record.1 > shown);
    }
}
