// Package etcdcluster operates etcd clusters: it makes members with TLS from an EtcdCluster, and keeps them running, one decision at a
// time. It never starts a second cluster, and never destroys the data of a cluster.
//
// # Contract
//
// Setup registers the reconciler with a controller-runtime manager. For an EtcdCluster NAME in the namespace NS these objects exist; the
// functions in parentheses return their names:
//
//   - A Service of the members that are ready, https://NAME-client.NS.svc.<cluster domain>:2379 (ClientURL). It stays the same when the
//     cluster is scaled.
//   - status.endpoints: that URL, once the cluster has started.
//   - The Secret NAME-client (ClientSecretName) with tls.crt, tls.key and ca.crt. The members accept the certificate; ca.crt verifies the
//     members. Also in status.clientSecretName, once the cluster can be used.
//   - The Secret NAME-trust (TrustSecretName). Its key TrustedClients verifies the members, too, also while the authority rotates its key.
//   - The cert-manager Issuer NAME-ca (ClientIssuerName), for consumers that need other certificates: a Certificate with the usage "client
//     auth" and any common name. Its Secret has all three keys, too.
//   - The conditions Ready (every member matches the spec) and Available (the cluster accepts writes; wait for this one). Both are False
//     with QuorumLost.
//
// An owner creates an EtcdCluster with itself as controller, and deletes nothing in it. Deleting an EtcdCluster keeps its volumes, unless
// spec.deletionPolicy says otherwise.
//
// # Reconciliation
//
// Each reconciliation prepares what pods need (certificates, Services, trust), takes a snapshot of the cluster (observe, compare), decides
// on one step (decide), writes the decision into the status (report), and executes the step (execute). Observing changes nothing, and
// only execute changes what was observed.
package etcdcluster
