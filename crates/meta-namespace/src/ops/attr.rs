//! Reading attributes and symbolic links.

use crate::{Located, OpError, Place, Query, Unit};
use braid_api::Code;
use braid_api::meta::{AttrAnswer, GetAttr, Grant, InodeRef, ReadLink};
use braid_types::FileKind;
use bytes::Bytes;

/// The answer about `located`, with its place if that is not where `asked` thought.
pub(super) fn attr_answer(asked: &InodeRef, located: &Located) -> AttrAnswer {
    let place = match &located.place {
        Place::Entry(parent, Some(name)) if asked.hint.as_ref() != Some(&(*parent, name.clone())) => {
            Some((*parent, name.clone()))
        }
        _ => None,
    };
    AttrAnswer { attr: located.inode.attr(), cuts: located.inode.cuts.clone(), grant: Grant::default(), place }
}

impl Query for GetAttr {
    type Answer = AttrAnswer;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<AttrAnswer, OpError> {
        let located = unit.find(&self.inode).await?;
        Ok(attr_answer(&self.inode, &located))
    }
}

impl Query for ReadLink {
    type Answer = Bytes;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<Bytes, OpError> {
        let inode = unit.find(&self.inode).await?.inode;
        if inode.kind != FileKind::Symlink {
            return Err(Code::Invalid.into());
        }
        Ok(inode.target)
    }
}
