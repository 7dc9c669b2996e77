//! A map from sessions to something, of which there is one as a rule: who has a lease on one key, who has one file.
//!
//! A B-tree has room for eleven in its first leaf: with 112 bytes for a file lease that was 1.3 KiB for each file, and 400,000
//! leases took 290 MB where 100 do.

use braid_types::SessionId;

/// In the order of the sessions, so that a run can be repeated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Few<V>(Vec<(SessionId, V)>);

impl<V> Default for Few<V> {
    fn default() -> Self {
        Few(Vec::new())
    }
}

impl<V> Few<V> {
    fn find(&self, session: SessionId) -> Result<usize, usize> {
        self.0.binary_search_by_key(&session, |(id, _)| *id)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains_key(&self, session: &SessionId) -> bool {
        self.find(*session).is_ok()
    }

    pub fn get(&self, session: &SessionId) -> Option<&V> {
        let at = self.find(*session).ok()?;
        Some(&self.0[at].1)
    }

    pub fn get_mut(&mut self, session: &SessionId) -> Option<&mut V> {
        let at = self.find(*session).ok()?;
        Some(&mut self.0[at].1)
    }

    fn put(&mut self, at: usize, session: SessionId, value: V) {
        // Else the first takes the room of four.
        if self.0.len() < 2 {
            self.0.reserve_exact(1);
        }
        self.0.insert(at, (session, value));
    }

    /// Gives what was there.
    pub fn insert(&mut self, session: SessionId, value: V) -> Option<V> {
        match self.find(session) {
            Ok(at) => Some(std::mem::replace(&mut self.0[at].1, value)),
            Err(at) => {
                self.put(at, session, value);
                None
            }
        }
    }

    pub fn get_or_insert(&mut self, session: SessionId, value: V) -> &mut V {
        let at = match self.find(session) {
            Ok(at) => at,
            Err(at) => {
                self.put(at, session, value);
                at
            }
        };
        &mut self.0[at].1
    }

    pub fn remove(&mut self, session: &SessionId) -> Option<V> {
        let at = self.find(*session).ok()?;
        Some(self.0.remove(at).1)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&SessionId, &V)> {
        self.0.iter().map(|(session, value)| (session, value))
    }

    pub fn keys(&self) -> impl Iterator<Item = &SessionId> {
        self.0.iter().map(|(session, _)| session)
    }

    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }
}

impl<V> IntoIterator for Few<V> {
    type Item = (SessionId, V);
    type IntoIter = std::vec::IntoIter<(SessionId, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_map_in_order_and_one_takes_the_room_of_one() {
        let mut few = Few::default();
        assert_eq!(few.insert(SessionId(7), 'a'), None);
        assert_eq!(few.0.capacity(), 1);
        assert_eq!(few.insert(SessionId(3), 'b'), None);
        assert_eq!(few.insert(SessionId(7), 'c'), Some('a'));
        assert_eq!(*few.get_or_insert(SessionId(5), 'd'), 'd');
        assert_eq!(*few.get_or_insert(SessionId(5), 'e'), 'd');
        assert_eq!(few.iter().map(|(id, v)| (id.0, *v)).collect::<Vec<_>>(), [(3, 'b'), (5, 'd'), (7, 'c')]);
        assert_eq!((few.remove(&SessionId(3)), few.remove(&SessionId(3))), (Some('b'), None));
        assert_eq!((few.len(), few.get(&SessionId(5)), few.get(&SessionId(3))), (2, Some(&'d'), None));
    }
}
