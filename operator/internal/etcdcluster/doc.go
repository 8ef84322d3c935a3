// Package etcdcluster exists so that nobody has to run an etcd by hand: it makes of an EtcdCluster members with TLS, and
// then keeps them alive, one decision at a time, without ever starting a second cluster or destroying the data of one.
//
// # What others rely on
//
// Setup registers the reconciler with a controller-runtime manager; AddToScheme of this package adds the types that it
// needs. Of an EtcdCluster NAME in a namespace NS there are, by the functions that return their names:
//
//   - ClientURL: https://NAME-client.NS.svc.<cluster domain>:2379, the Service of the members that are ready. It stays the
//     same when the cluster is scaled.
//   - status.endpoints: that URL, once the cluster has begun.
//   - ClientSecretName: the Secret NAME-client with tls.crt, tls.key and ca.crt. The first two are accepted by the members,
//     the last vouches for them. Also in status.clientSecretName, once the cluster can be used.
//   - TrustSecretName: the Secret NAME-trust, whose key TrustedClients vouches for them, too, also while the authority has one
//     key after another.
//   - ClientIssuerName: the cert-manager Issuer NAME-ca, for consumers that want certificates of their own: a Certificate with
//     the usage "client auth" and any common name, whose Secret again has all three keys.
//   - The conditions Ready (every member is as asked for) and Available (it takes writes; wait for this one). Both are
//     False with QuorumLost.
//
// An owner makes an EtcdCluster, with itself as controller, and deletes nothing in it; whoever deletes an EtcdCluster keeps
// its volumes, unless spec.deletionPolicy says otherwise.
package etcdcluster
