use crate::body::decode;
use crate::remote::Remote;
use braid_api::data::{DataAnswer, DataNode, DataRequest};
use braid_api::meta::{MetaAnswer, MetaRequest, Namespace};
use braid_api::{Context, Result};
use bytes::Bytes;

/// A metadata server far away.
#[derive(Clone)]
pub struct RemoteNamespace(pub Remote);

/// A data server far away.
#[derive(Clone)]
pub struct RemoteDataNode(pub Remote);

impl Namespace for RemoteNamespace {
    async fn execute(&self, cx: Context, request: MetaRequest) -> Result<MetaAnswer> {
        let (body, _) = self.0.call(cx, &request, Bytes::new()).await?;
        decode(&body)
    }
}

impl DataNode for RemoteDataNode {
    async fn execute(&self, cx: Context, request: DataRequest, payload: Bytes) -> Result<(DataAnswer, Bytes)> {
        let (body, payload) = self.0.call(cx, &request, payload).await?;
        Ok((decode(&body)?, payload))
    }
}
