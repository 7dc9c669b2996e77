//! Finding names: one component, several of a directory, or a whole path in one message.

use crate::rows::{Entry, flags, keys};
use crate::{OpError, Query, Unit};
use braid_api::meta::{Grant, Lookup, LookupAnswer, Resolve, Resolved, StatNames};
use braid_api::{Code, Error};
use braid_types::{Attr, FileKind, InodeId, Name};

impl Query for Lookup {
    type Answer = LookupAnswer;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<LookupAnswer, OpError> {
        let found = unit.find_entry(self.parent, &self.name).await?;
        Ok(LookupAnswer { attr: found.map(|l| l.inode.attr()), grant: Grant::default() })
    }
}

impl Query for StatNames {
    type Answer = Vec<Option<Attr>>;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<Vec<Option<Attr>>, OpError> {
        if self.names.len() > StatNames::MAX {
            let cause = format_args!("{} names in one message; {} are the most", self.names.len(), StatNames::MAX);
            return Err(Error::new(Code::TooBig, "StatNames", cause).into());
        }
        let entries: Vec<_> = self.names.iter().map(|name| keys::entry(self.parent, name)).collect();
        unit.load(&entries).await?;
        let (mut attrs, mut linked) = (Vec::with_capacity(entries.len()), Vec::new());
        for (i, key) in entries.iter().enumerate() {
            attrs.push(match unit.get::<Entry>(key).await? {
                Some(Entry::Here(inode)) => Some(inode.attr()),
                Some(Entry::Elsewhere { id, .. }) => {
                    linked.push((i, keys::inode_id(id)));
                    None
                }
                None => None,
            });
        }
        unit.load(&linked.iter().map(|(_, key)| key.clone()).collect::<Vec<_>>()).await?;
        for (i, _) in linked {
            attrs[i] = unit.find_entry(self.parent, &self.names[i]).await?.map(|located| located.inode.attr());
        }
        Ok(attrs)
    }
}

/// A path, and the directories it may lead through: right or wrong, what the rows say counts.
#[derive(Clone, Debug)]
pub struct ResolveAlong {
    pub resolve: Resolve,
    pub way: Vec<InodeId>,
}

impl Query for ResolveAlong {
    type Answer = Resolved;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<Resolved, OpError> {
        let Resolve { from, path } = &self.resolve;
        let dirs = std::iter::once(*from).chain(self.way.iter().copied());
        let entries: Vec<_> = dirs.zip(path).map(|(dir, name)| keys::entry(dir, name)).collect();
        unit.load(&entries).await?;
        self.resolve.ask(unit).await
    }
}

/// That a name in a directory leads to an inode.
#[derive(Clone, Debug)]
pub struct Step {
    pub dir: InodeId,
    pub name: Name,
    pub to: InodeId,
}

/// A question about what a path leads to, asked in the same moment as whether it does: [`Code::Stale`] if it leads elsewhere.
pub struct IfLedBy<Q> {
    pub steps: Vec<Step>,
    pub query: Q,
}

impl<Q: Query> Query for IfLedBy<Q> {
    type Answer = Q::Answer;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<Q::Answer, OpError> {
        let entry = |step: &Step| keys::entry(step.dir, &step.name);
        let mut first: Vec<_> = self.steps.iter().map(entry).collect();
        first.extend(self.query.ahead());
        unit.load(&first).await?;
        for step in &self.steps {
            let found = unit.get::<Entry>(&entry(step)).await?;
            if found.is_none_or(|entry| entry.id() != step.to) {
                return Err(Code::Stale.into());
            }
        }
        self.query.ask(unit).await
    }
}

impl Query for Resolve {
    type Answer = Resolved;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<Resolved, OpError> {
        let mut attrs = Vec::with_capacity(self.path.len());
        let mut dir = self.from;
        for (i, name) in self.path.iter().enumerate() {
            let found = unit.find_entry(dir, name).await?;
            let rest = (self.path.len() - i) as u32;
            match found {
                None => return Ok(Resolved { attrs, rest }),
                Some(located) => {
                    attrs.push(located.inode.attr());
                    if located.inode.kind != FileKind::Directory || located.inode.has(flags::DEAD) {
                        return Ok(Resolved { attrs, rest: rest - 1 });
                    }
                    dir = located.inode.id;
                }
            }
        }
        Ok(Resolved { attrs, rest: 0 })
    }
}

/// The place of an inode, as fsck and `..` need it.
impl Query for braid_api::meta::GetPlace {
    type Answer = braid_api::meta::Place;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<Self::Answer, OpError> {
        if self.id == braid_types::InodeId::ROOT {
            return Ok(braid_api::meta::Place { parent: self.id, name: None });
        }
        match unit.get::<crate::rows::IdRow>(&keys::inode_id(self.id)).await? {
            Some(crate::rows::IdRow::At { parent, name }) => {
                Ok(braid_api::meta::Place { parent, name: braid_types::Name::new(&name).ok() })
            }
            // A directory that has been removed with what is in it.
            Some(crate::rows::IdRow::Attributes(inode)) if inode.is_dir() => Err(Code::Stale.into()),
            // A file with several links has no one place.
            Some(crate::rows::IdRow::Attributes(_)) => Err(Code::NotSupported.into()),
            None => Err(Code::Stale.into()),
        }
    }
}
