//! The contracts without their types. The traits of `api` give futures of unnamed types; one allocation a
//! message makes the client a single type whatever is below it.

use braid_api::data::{DataAnswer, DataRequest};
use braid_api::meta::{Mark, MetaAnswer, MetaRequest, Namespace, ServerInfo};
use braid_api::{Context, DataNode, DataPeers, Result};
use braid_env::BoxFuture;
use bytes::Bytes;
use std::sync::Arc;

pub trait Meta: Send + Sync {
    /// [`Namespace::execute_early`].
    fn execute(&self, cx: Context, request: MetaRequest) -> BoxFuture<'_, Result<(MetaAnswer, Mark)>>;
}

impl<N: Namespace> Meta for N {
    fn execute(&self, cx: Context, request: MetaRequest) -> BoxFuture<'_, Result<(MetaAnswer, Mark)>> {
        Box::pin(Namespace::execute_early(self, cx, request))
    }
}

pub trait Node: Send + Sync {
    fn execute(&self, cx: Context, request: DataRequest, payload: Bytes) -> BoxFuture<'_, Result<(DataAnswer, Bytes)>>;
}

impl<N: DataNode> Node for N {
    fn execute(&self, cx: Context, request: DataRequest, payload: Bytes) -> BoxFuture<'_, Result<(DataAnswer, Bytes)>> {
        Box::pin(DataNode::execute(self, cx, request, payload))
    }
}

pub trait Peers: Send + Sync {
    fn node(&self, server: &ServerInfo) -> Arc<dyn Node>;
}

impl<P: DataPeers> Peers for P {
    fn node(&self, server: &ServerInfo) -> Arc<dyn Node> {
        DataPeers::node(self, server)
    }
}
