package definitions

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The minimal valid object of each kind, to which the cases apply their changes.
var least = map[string]string{
	"RootShard": `
metadata: {name: root}
spec:
  external: {hostname: kcp.example.com, port: 6443}
  etcd: {endpoints: ["http://etcd:2379"]}`,
	"Kubeconfig": `
metadata: {name: admin}
spec:
  target: {rootShardRef: {name: root}}
  username: admin
  validity: 24h
  secretRef: {name: admin}`,
	"Shard": `
metadata: {name: west}
spec:
  rootShard: {ref: {name: kcp}}
  etcd: {endpoints: ["http://etcd:2379"]}`,
	"FrontProxy": `
metadata: {name: public}
spec: {rootShard: {ref: {name: kcp}}}`,
	"CacheServer": `
metadata: {name: cache}
spec: {}`,
	"VirtualWorkspace": `
metadata: {name: virtual}
spec:
  target: {shardRef: {name: west}}
  external: {hostname: virtual.example.com, port: 6443}`,
	"EtcdCluster": `
metadata: {name: etcd}
spec: {}`,
	"EtcdBackup": `
metadata: {name: now}
spec: {cluster: etcd, store: {volume: {claimName: snapshots}}}`,
	"EtcdBackupSchedule": `
metadata: {name: nightly}
spec: {cluster: etcd, schedule: 0 3 * * *, store: {volume: {claimName: snapshots}}}`,
}

// refusals are changes that must be refused. If from is set, the change is an update of that object.
var refusals = []struct {
	name, kind   string
	from, change string
	want         string
}{
	{"a class of load balancers without one", "FrontProxy", "", "spec: {serviceTemplate: {spec: {loadBalancerClass: internal}}}",
		"require type LoadBalancer"},
	{"a port of nodes without any", "FrontProxy", "", "spec: {serviceTemplate: {spec: {type: ClusterIP, nodePort: 30443}}}",
		"require type NodePort or LoadBalancer"},
	{"a source that is no network", "FrontProxy", "",
		"spec: {serviceTemplate: {spec: {type: LoadBalancer, loadBalancerSourceRanges: [example.com]}}}", "loadBalancerSourceRanges"},
	{"a health check of nodes without a local policy", "FrontProxy", "",
		"spec: {serviceTemplate: {spec: {type: LoadBalancer, healthCheckNodePort: 30444}}}", "requires type LoadBalancer and externalTrafficPolicy Local"},
	{"no ports of nodes for a cluster IP", "FrontProxy", "", "spec: {serviceTemplate: {spec: {allocateLoadBalancerNodePorts: false}}}",
		"allocateLoadBalancerNodePorts requires type LoadBalancer"},
	{"a third family of addresses", "FrontProxy", "", "spec: {serviceTemplate: {spec: {ipFamilies: [IPv5]}}}", "Unsupported value"},
	{"a number of pods and an autoscaler", "FrontProxy", "", "spec: {replicas: 2, autoscaling: {maxReplicas: 5}}", "set replicas or autoscaling, not both"},
	{"a number of pods and an autoscaler", "RootShard", "", "spec: {replicas: 2, autoscaling: {maxReplicas: 5}}", "set replicas or autoscaling, not both"},
	{"a number of pods and an autoscaler", "Shard", "", "spec: {replicas: 2, autoscaling: {maxReplicas: 5}}", "set replicas or autoscaling, not both"},
	{"an autoscaler without a maximum", "Shard", "", "spec: {autoscaling: {minReplicas: 2}}", "Required value"},
	{"an autoscaler whose minimum is above its maximum", "Shard", "", "spec: {autoscaling: {minReplicas: 5, maxReplicas: 2}}",
		"minReplicas must not be greater than maxReplicas"},
	{"an autoscaler for an embedded etcd", "CacheServer", "", "spec: {autoscaling: {maxReplicas: 2}}", "autoscaling requires etcd"},
	{"an Ingress that terminates TLS", "FrontProxy", "", "spec: {ingress: {className: nginx, metadata: {}}}",
		"set the annotation with which the controller of the class passes TLS through"},
	{"a route to no Gateway", "FrontProxy", "", "spec: {tlsRoute: {parentRefs: []}}", "should have at least 1 items"},
	{"a route to a Gateway without a name", "FrontProxy", "", "spec: {tlsRoute: {parentRefs: [{namespace: gateways}]}}", "Required value"},
	{"a name that is too long", "RootShard", "", "metadata: {name: a12345678901234567890123456789012345678901}", "at most 40 lower case letters"},
	{"a name with a dot", "RootShard", "", "metadata: {name: root.kcp}", "at most 40 lower case letters"},
	{"a name that no Service can have", "RootShard", "", "metadata: {name: 1st}", "beginning with a letter"},
	{"a URL as hostname", "RootShard", "", "spec: {external: {hostname: 'https://kcp.example.com'}}", "a hostname has no scheme"},
	{"a URL as private hostname", "RootShard", "", "spec: {external: {privateHostname: kcp/path}}", "a hostname has no scheme"},
	{"a hostname with a port", "RootShard", "", "spec: {external: {hostname: 'kcp.example.com:443'}}", "no port and no path"},
	{"a hostname with a blank", "RootShard", "", "spec: {external: {hostname: 'kcp example'}}", "a hostname has no scheme"},
	{"no hostname", "RootShard", "", "spec: {external: {hostname: ''}}", "should be at least 1 chars long"},
	{"a port that does not exist", "RootShard", "", "spec: {external: {port: 70000}}", "less than or equal to 65535"},
	{"neither endpoints nor a managed etcd", "RootShard", "", "spec: {etcd: {endpoints: null}}", "set either endpoints"},
	{"both endpoints and a managed etcd", "RootShard", "", "spec: {etcd: {managed: {}}}", "set either endpoints"},
	{"no endpoint at all", "RootShard", "", "spec: {etcd: {endpoints: []}}", "should have at least 1 items"},
	{"an endpoint without a scheme", "RootShard", "", "spec: {etcd: {endpoints: ['etcd:2379']}}", "an endpoint is a URL"},
	{"the certificates of another etcd for a managed one", "RootShard", "",
		"spec: {etcd: {endpoints: null, managed: {}, tlsConfig: {secretRef: {name: etcd}}}}", "tlsConfig is for endpoints"},
	{"a move to a managed etcd", "RootShard", "spec: {}", "spec: {etcd: {endpoints: null, managed: {}}}", "cannot move between endpoints and a managed etcd"},
	{"another prefix", "RootShard", "spec: {etcd: {prefix: /kcp}}", "spec: {etcd: {prefix: /other}}", "prefix is immutable"},
	{"an issuer and an authority", "RootShard", "", "spec: {certificates: {issuerRef: {name: a}, caSecretRef: {name: b}}}", "set issuerRef or caSecretRef, not both"},
	{"a certificate that does not exist", "RootShard", "", "spec: {certificateTemplates: {sever: {}}}", "a RootShard has no such certificate"},
	{"a certificate of the proxy that does not exist", "RootShard", "", "spec: {proxy: {certificateTemplates: {client: {}}}}", "a proxy has no such certificate"},
	{"a certificate for less than an hour", "RootShard", "", "spec: {certificateTemplates: {server: {spec: {duration: 5m}}}}", "must be at least 1h"},
	{"a renewal before the certificate is issued", "RootShard", "", "spec: {certificateTemplates: {server: {spec: {duration: 24h, renewBefore: 1440m}}}}",
		"renewBefore must be less than duration"},
	{"a base URL without TLS", "RootShard", "", "spec: {shardBaseURL: 'http://shard'}", "must begin with https://"},
	{"an issuer of tokens without TLS", "RootShard", "", "spec: {auth: {oidc: {issuerURL: 'http://dex', clientID: kcp}}}", "must begin with https://, because the keys of the issuer"},
	{"a duration in days", "RootShard", "", "spec: {auth: {webhook: {configSecretName: w, cacheAuthenticationTTL: 1d}}}", "must be a duration such as 8760h"},
	{"a number of batches that is no number", "RootShard", "", "spec: {audit: {webhook: {batchThrottleQPS: many}}}", "must be a number such as"},
	{"an image by tag and digest", "RootShard", "",
		"spec: {image: {tag: v1, digest: 'sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef'}}", "set tag or digest, not both"},
	{"an image by a URL", "RootShard", "", "spec: {image: {repository: 'https://registry.example.com/kcp'}}", "must be a repository such as registry.example.com/kcp"},
	{"an image with a blank", "RootShard", "", "spec: {image: {repository: ' kcp'}}", "must be a repository such as registry.example.com/kcp"},
	{"a tag with a blank", "RootShard", "", "spec: {image: {tag: 'v1 '}}", "a tag consists of letters, digits"},
	{"half a digest", "RootShard", "", "spec: {image: {digest: 'sha256:0123'}}", "a digest is sha256: followed by 64 hexadecimal digits"},
	{"a negative number of pods", "RootShard", "", "spec: {replicas: -1}", "greater than or equal to 0"},
	{"a field that does not exist", "RootShard", "", "spec: {replica: 1}", "unknown field"},
	{"a volume with a misspelled field", "RootShard", "", "spec: {extraVolumes: [{name: a, secrte: {secretName: a}}]}", "unknown field"},
	{"two volumes of one name", "RootShard", "", "spec: {extraVolumes: [{name: a}, {name: a}]}", "Duplicate value"},
	{"an even number of managed members", "RootShard", "", "spec: {etcd: {endpoints: null, managed: {replicas: 2}}}", "must be 1, 3 or 5"},

	{"a name that is too long", "Kubeconfig", "", "metadata: {name: " + strings.Repeat("a", 201) + "}", "at most 200 characters"},
	{"no target", "Kubeconfig", "", "spec: {target: {rootShardRef: null}}", "set exactly one of rootShardRef"},
	{"another target", "Kubeconfig", "spec: {}", "spec: {target: {rootShardRef: {name: other}}}", "target is immutable"},
	{"two targets", "Kubeconfig", "", "spec: {target: {shardRef: {name: second}}}", "set exactly one of rootShardRef"},
	{"a path with a slash", "Kubeconfig", "", "spec: {targetWorkspace: root/team}", "a workspace is a path of names with colons"},
	{"two workspaces", "Kubeconfig", "",
		"spec: {targetWorkspace: root, authorization: {clusterRoleBindings: {cluster: root, clusterRoles: [view]}}}", "is deprecated"},
	{"roles in a path with a slash", "Kubeconfig", "",
		"spec: {authorization: {clusterRoleBindings: {cluster: 'root/../other', clusterRoles: [view]}}}", "or the name of its logical cluster"},
	{"a username that is too long for a certificate", "Kubeconfig", "", "spec: {username: " + strings.Repeat("a", 65) + "}", "at most 64 characters"},
	{"a certificate for ten minutes", "Kubeconfig", "", "spec: {validity: 10m}", "must be at least 1h"},
	{"a validity in days", "Kubeconfig", "", "spec: {validity: 1d}", "must be a duration such as 8760h"},
	{"the same group twice", "Kubeconfig", "", "spec: {groups: [team, team]}", "Duplicate value"},

	{"a name that is too long", "Shard", "", "metadata: {name: a12345678901234567890123456789012345678901}", "the name of a Shard is part of"},
	{"the name of the root shard in kcp", "Shard", "", "metadata: {name: root}", "root is the name of the root shard in kcp"}, // D32
	{"the name of its RootShard", "Shard", "", "metadata: {name: kcp}", "would both own an EtcdCluster"},                      // D32
	{"no RootShard", "Shard", "", "spec: {rootShard: {ref: null}}", "set ref to the name of a RootShard"},                     // D27
	{"another RootShard", "Shard", "spec: {}", "spec: {rootShard: {ref: {name: other}}}", "the RootShard is immutable"},
	{"no etcd", "Shard", "", "spec: {etcd: null}", "Required value"},
	{"another prefix", "Shard", "spec: {etcd: {prefix: /kcp}}", "spec: {etcd: {prefix: /other}}", "prefix is immutable"},
	{"a certificate that does not exist", "Shard", "", "spec: {certificateTemplates: {root-ca: {}}}", "a Shard has no such certificate"},

	{"a name that is too long", "FrontProxy", "", "metadata: {name: a12345678901234567890123456789012345678901}", "the name of a FrontProxy is part of"},
	{"no RootShard", "FrontProxy", "", "spec: {rootShard: {ref: null}}", "set ref to the name of a RootShard"},
	{"two addresses", "FrontProxy", "", "spec: {externalHostname: a.example.com, external: {hostname: b.example.com, port: 443}}", "remove externalHostname"},
	{"an address without a port", "FrontProxy", "", "spec: {external: {hostname: kcp.example.com}}", "set the port that clients use"},
	{"a URL as hostname", "FrontProxy", "", "spec: {external: {hostname: 'https://kcp.example.com', port: 443}}", "a hostname has no scheme, no port"},
	{"a URL as deprecated hostname", "FrontProxy", "", "spec: {externalHostname: 'https://kcp.example.com'}", "a hostname has no scheme and no path"},
	{"a path without a slash", "FrontProxy", "",
		"spec: {additionalPathMappings: [{path: things, backend: 'https://things', backend_server_ca: a, proxy_client_cert: b, proxy_client_key: c}]}",
		"a path begins with /"},
	{"a backend without TLS", "FrontProxy", "",
		"spec: {additionalPathMappings: [{path: /things, backend: 'http://things', backend_server_ca: a, proxy_client_cert: b, proxy_client_key: c}]}",
		"must begin with https://"},
	{"a certificate that does not exist", "FrontProxy", "", "spec: {certificateTemplates: {client: {}}}", "a FrontProxy has no such certificate"},

	{"a name that is too long", "CacheServer", "", "metadata: {name: a12345678901234567890123456789012345678901}", "the name of a CacheServer is part of"},
	{"several pods with an embedded etcd", "CacheServer", "", "spec: {replicas: 2}", "more than one pod requires etcd"},
	{"an etcd that is removed", "CacheServer", "spec: {etcd: {endpoints: ['http://etcd:2379']}}", "spec: {etcd: null}", "etcd cannot be removed"},
	{"a certificate that does not exist", "CacheServer", "", "spec: {certificateTemplates: {server-ca: {}}}", "a CacheServer has no such certificate"},

	{"a name that is too long", "VirtualWorkspace", "", "metadata: {name: a12345678901234567890123456789012345678901}", "the name of a VirtualWorkspace is part of"},
	{"no target", "VirtualWorkspace", "", "spec: {target: {shardRef: null}}", "set either rootShardRef or shardRef"},
	{"two targets", "VirtualWorkspace", "", "spec: {target: {rootShardRef: {name: kcp}}}", "set either rootShardRef or shardRef"},
	{"a certificate that does not exist", "VirtualWorkspace", "", "spec: {certificateTemplates: {root-ca: {}}}", "a VirtualWorkspace has no such certificate"},

	{"another store", "EtcdBackup", "spec: {}", "spec: {store: {volume: {claimName: other}}}", "because a snapshot is taken once"},
	{"a name that is too long", "EtcdBackup", "", "metadata: {name: " + strings.Repeat("a", 53) + "}", "at most 52 characters"},
	{"a name that is too long", "EtcdBackupSchedule", "", "metadata: {name: " + strings.Repeat("a", 41) + "}", "at most 40 characters"},
	{"no store", "EtcdBackup", "", "spec: {store: {volume: null}}", "set exactly one of volume and s3"},
	{"two stores", "EtcdBackup", "", "spec: {store: {s3: {endpoint: 'https://s3', bucket: all, credentialsSecretRef: {name: a}}}}", "set exactly one of volume and s3"},
	{"a bucket without a scheme", "EtcdBackup", "",
		"spec: {store: {volume: null, s3: {endpoint: s3.example.com, bucket: all, credentialsSecretRef: {name: a}}}}", "an endpoint is a URL"},
	{"a schedule in words", "EtcdBackupSchedule", "", "spec: {schedule: every night}", "a schedule has five fields"},
	{"nothing to keep", "EtcdBackupSchedule", "", "spec: {keepLast: 0}", "greater than or equal to 1"},
	{"a key outside of the store", "EtcdCluster", "",
		"spec: {restore: {key: ../other.db, store: {volume: {claimName: snapshots}}}}", "must be status.snapshot.key of an EtcdBackup"},
	{"a snapshot and a survivor", "EtcdCluster", "",
		"spec: {restore: {key: a.db, store: {volume: {claimName: a}}, survivor: {member: etcd-0, clusterID: ab}}}", "set either store and key"},
	{"a snapshot in no store", "EtcdCluster", "", "spec: {restore: {key: a.db}}", "set either store and key"},
	{"a survivor without the ID of its cluster", "EtcdCluster", "", "spec: {restore: {survivor: {member: etcd-0}}}", "Required value"},
	{"a last snapshot without a store", "EtcdCluster", "", "spec: {deletionPolicy: Snapshot}", "requires lastSnapshot"},
	{"another domain", "EtcdCluster", "spec: {clusterDomain: a.example}", "spec: {clusterDomain: b.example}", "create a new cluster from a snapshot"},

	{"a name that is too long", "EtcdCluster", "", "metadata: {name: a123456789012345678901234567890123456789012345}", "at most 45 lower case letters"},
	{"no members", "EtcdCluster", "", "spec: {replicas: 0}", "must be 1, 3 or 5"},
	{"an even number of members", "EtcdCluster", "", "spec: {replicas: 4}", "must be 1, 3 or 5"},
	{"too many members", "EtcdCluster", "", "spec: {replicas: 7}", "must be 1, 3 or 5"},
	{"an invalid version", "EtcdCluster", "", "spec: {version: v3.7}", "should match"},
	{"a skipped minor version", "EtcdCluster", "spec: {version: 3.5.21}", "spec: {version: 3.7.3}", "one minor version at a time"},
	{"another major version", "EtcdCluster", "spec: {version: 3.7.3}", "spec: {version: 4.0.0}", "one minor version at a time"},
	{"an upgrade that skips a minor version", "EtcdCluster", "{spec: {version: 3.6.0}, status: {currentVersion: 3.5.21}}",
		"{spec: {version: 3.7.3}, status: {currentVersion: 3.5.21}}", "the cluster runs 3.5.21: etcd can only be upgraded to the next minor version"},
	{"a downgrade to an older minor version", "EtcdCluster", "{spec: {version: 3.7.3}, status: {currentVersion: 3.7.3}}",
		"{spec: {version: 3.6.9}, status: {currentVersion: 3.7.3}}", "the cluster runs 3.7.3: etcd can only be upgraded to the next minor version"},
	{"volumes that shrink", "EtcdCluster", "spec: {storage: {size: 10Gi}}", "spec: {storage: {size: 9Gi}}", "volumes can grow, but not shrink"},
	{"a size that is removed", "EtcdCluster", "spec: {storage: {size: 10Gi}}", "spec: {storage: {size: null}}", "volumes can grow, but not shrink"},
	{"storage that is removed", "EtcdCluster", "spec: {storage: {size: 10Gi}}", "spec: {storage: null}", "storage cannot be removed"},
	{"another class of storage", "EtcdCluster", "spec: {storage: {storageClassName: fast}}", "spec: {storage: {storageClassName: slow}}", "storageClassName is immutable"},
	{"another access mode", "EtcdCluster", "spec: {storage: {size: 1Gi}}", "spec: {storage: {accessMode: ReadWriteOncePod}}", "accessMode is immutable"},
	{"a number of revisions instead of a duration", "EtcdCluster", "", "spec: {compaction: {retention: '1000'}}", "must be a duration such as 5m"},
	{"a duration instead of a number of revisions", "EtcdCluster", "", "spec: {compaction: {mode: Revision, retention: 5m}}", "must be a duration such as 5m"},
	{"a schedule of three fields", "EtcdCluster", "", "spec: {defrag: {schedule: 0 3 *}}", "a schedule has five fields"},
	{"a ratio above one", "EtcdCluster", "", "spec: {defrag: {thresholdRatio: '1.5'}}", "must be a number from 0 to 1"},
	{"a quota of nothing", "EtcdCluster", "", "spec: {quotaBackendBytes: 0}", "greater than or equal to 16777216"},
}

func TestInvalidInputIsRefusedWithMessage(t *testing.T) {
	byKind := definitions(t)
	for _, c := range refusals {
		t.Run(c.kind+": "+c.name, func(t *testing.T) {
			if errs := refuse(t, byKind, c.kind, c.from, c.change); !slices.ContainsFunc(errs, func(err *field.Error) bool {
				return strings.Contains(err.ErrorBody(), c.want)
			}) {
				t.Errorf("want %q, got: %v", c.want, errs.ToAggregate())
			}
		})
	}
}

func TestEveryRuleHasRefusedCase(t *testing.T) {
	byKind := definitions(t)
	var said []string
	for _, c := range refusals {
		for _, err := range refuse(t, byKind, c.kind, c.from, c.change) {
			said = append(said, err.ErrorBody())
		}
	}
	rules := 0
	for kind, definition := range byKind {
		eachRule(definition.structural, func(rule, message string) {
			rules++
			if !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, message) }) {
				t.Errorf("%s: no case is refused with %q", kind, message)
			}
		})
	}
	if rules < 25 {
		t.Errorf("only %d rules were looked at", rules)
	}
}

// These inputs resemble the refused ones, and must be valid.
func TestValidInputIsAccepted(t *testing.T) {
	byKind := definitions(t)
	for _, c := range []struct {
		name, kind, from, change string
	}{
		{"an image at a port", "RootShard", "", "spec: {image: {repository: 'localhost:5000/a/kcp', tag: v1.2_3-x}}"},
		{"an address as hostname", "RootShard", "", "spec: {external: {hostname: 'fd00::7', privateHostname: 10.0.0.7}}"},
		{"the longest name", "RootShard", "", "metadata: {name: a234567890123456789012345678901234567890}"},
		{"more endpoints", "RootShard", "spec: {}", "spec: {etcd: {endpoints: ['http://etcd:2379', 'https://other:2379']}}"},
		{"no certificates, which the operator then makes", "RootShard", "", "spec: {certificates: {}}"},
		{"an unknown field in the pods, which the operator reports", "RootShard", "", "spec: {deploymentTemplate: {spec: {template: {spec: {priorityClassName: high, containers: [{name: kcp, env: [{name: A, value: b}]}]}}}}}"},
		{"the empty address of a Go client", "FrontProxy", "", "spec: {external: {hostname: '', port: 0}, externalHostname: kcp.example.com}"}, // D26
		{"a later etcd", "CacheServer", "spec: {}", "spec: {etcd: {endpoints: ['http://etcd:2379']}, replicas: 2}"},
		{"the next minor version", "EtcdCluster", "{spec: {version: 3.6.9}, status: {currentVersion: 3.6.9}}", "{spec: {version: 3.7.3}, status: {currentVersion: 3.6.9}}"},
		{"back from an upgrade that did not begin", "EtcdCluster", "{spec: {version: 3.7.99}, status: {currentVersion: 3.6.9}}", "{spec: {version: 3.6.9}, status: {currentVersion: 3.6.9}}"},
		{"an earlier patch version", "EtcdCluster", "{spec: {version: 3.7.3}, status: {currentVersion: 3.7.3}}", "{spec: {version: 3.7.2}, status: {currentVersion: 3.7.3}}"},
		{"from one member to five", "EtcdCluster", "spec: {replicas: 1}", "spec: {replicas: 5}"},
		{"larger volumes", "EtcdCluster", "spec: {storage: {size: 1000Mi}}", "spec: {storage: {size: 1Gi}}"},
		{"an access mode that says what it was", "EtcdCluster", "spec: {storage: {size: 1Gi}}", "spec: {storage: {size: 1Gi, accessMode: ReadWriteOnce}}"},
		{"revisions", "EtcdCluster", "", "spec: {compaction: {mode: Revision, retention: '1000'}}"},
		{"every night", "EtcdCluster", "", "spec: {defrag: {schedule: '@daily'}}"},
	} {
		t.Run(c.kind+": "+c.name, func(t *testing.T) {
			if errs := refuse(t, byKind, c.kind, c.from, c.change); len(errs) > 0 {
				t.Error(errs.ToAggregate())
			}
		})
	}
}

// refuse validates the minimal object with a change. If from is set, it validates an update of the minimal object with from.
func refuse(t *testing.T, byKind map[string]definition, kind, from, change string) field.ErrorList {
	t.Helper()
	base := parse(t, []byte(least[kind]))
	base["apiVersion"], base["kind"] = "operator.kcp.io/v1alpha1", kind
	var old map[string]any
	if from != "" {
		old = overlay(runtime.DeepCopyJSON(base), parse(t, []byte(from)))
		if errs := byKind[kind].validate(old, nil); len(errs) > 0 {
			t.Fatalf("the original object is invalid: %v", errs.ToAggregate())
		}
		base = old
	}
	return byKind[kind].validate(overlay(runtime.DeepCopyJSON(base), parse(t, []byte(change))), old)
}

// overlay applies a JSON merge patch.
func overlay(object, patch map[string]any) map[string]any {
	for name, value := range patch {
		inner, isMap := value.(map[string]any)
		below, wasMap := object[name].(map[string]any)
		switch {
		case value == nil:
			delete(object, name)
		case isMap && wasMap:
			object[name] = overlay(below, inner)
		default:
			object[name] = value
		}
	}
	return object
}

// eachRule calls f with the rules of a schema and their messages.
func eachRule(s *schema.Structural, f func(rule, message string)) {
	if s == nil {
		return
	}
	for _, rule := range s.XValidations {
		message := rule.Message
		if rule.MessageExpression != "" { // the constant text of the expression, up to the first quote
			parts := strings.Split(rule.MessageExpression, "'")
			message = parts[len(parts)-2]
		}
		f(rule.Rule, message)
	}
	eachRule(s.Items, f)
	for _, property := range s.Properties {
		eachRule(&property, f)
	}
	if s.AdditionalProperties != nil {
		eachRule(s.AdditionalProperties.Structural, f)
	}
}
