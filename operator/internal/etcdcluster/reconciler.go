package etcdcluster

import (
	"cmp"
	"context"
	"fmt"
	"time"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/apply"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/pki"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// +kubebuilder:rbac:groups=operator.kcp.io,resources=etcdclusters,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=etcdbackups,verbs=get;list;watch;create
// +kubebuilder:rbac:groups=operator.kcp.io,resources=etcdclusters/status,verbs=get;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=etcdclusters/finalizers,verbs=update
// +kubebuilder:rbac:groups=cert-manager.io,resources=certificates;issuers,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=cert-manager.io,resources=clusterissuers,verbs=get
// +kubebuilder:rbac:groups=apps,resources=statefulsets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=monitoring.coreos.com,resources=servicemonitors,verbs=get;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Intervals of reconciliation: after a step, while waiting for something, and when there is nothing to do.
const (
	afterStep    = 500 * time.Millisecond
	whileWaiting = 2 * time.Second
	whenSettled  = 30 * time.Second
)

// Reconciler reconciles EtcdClusters.
type Reconciler struct {
	client.Client
	// Live reads objects that are not in the caches, because they do not belong to the operator.
	Live     client.Reader
	Recorder events.EventRecorder
	Now      func() time.Time
	// Repository is the image repository of members. Tags are versions of etcd with a leading v.
	Repository string
	// Version is the version of etcd for new clusters without spec.version.
	Version string
	// Pods is what the installation allows pods to do.
	Pods workload.Security
	// StepErrors counts failed steps. If it is nil, they are not counted.
	StepErrors *prometheus.CounterVec
	// queryMembers overrides how members are queried, for tests without members.
	queryMembers func(clients map[int]memberClient) map[int]answer
	// host overrides the host names of members, for tests without DNS.
	host func(cluster *v1alpha1.EtcdCluster, member string) string
}

// scope is the EtcdCluster of one reconciliation.
type scope struct {
	*Reconciler
	cluster *v1alpha1.EtcdCluster
	secret  *corev1.Secret            // client certificate of the operator
	leaves  map[string]*corev1.Secret // Secrets of certificates that exist
	// podSecretsErr is why no pod can start: a Secret that pods mount is missing or incomplete.
	podSecretsErr error
	// trusted are the CA certificates that verify the members.
	trusted []byte
	// authorities is a hash of the CA certificates that members trust, and of the authorities that signed the members' certificates.
	authorities string
	rotation    rotation
	// issued are the Certificates of the cluster. It is nil if they were not read.
	issued []*certmanager.Certificate
	// certificatesErr is why a certificate is not ready. The members may still run with the previous one.
	certificatesErr error
	// after is when to reconcile again for changes without a watch, such as a certificate that was not renewed in time.
	after time.Duration
	// userError is what a user has to change. The members are maintained nevertheless.
	userError error
}

// Reconcile observes the cluster, decides on one step, and executes it.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	cluster := &v1alpha1.EtcdCluster{}
	if err := r.Live.Get(ctx, request.NamespacedName, cluster); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := cluster.DeepCopy()
	s := &scope{Reconciler: r, cluster: cluster}
	if !cluster.DeletionTimestamp.IsZero() {
		return s.delete(ctx, before)
	}
	if err := s.setFinalizer(ctx, cluster.Spec.DeletionPolicy == v1alpha1.EtcdSnapshot); err != nil {
		return ctrl.Result{}, err
	}
	return s.reconcile(ctx, before)
}

func (s *scope) save(ctx context.Context, before *v1alpha1.EtcdCluster) error {
	return conditions.Save(ctx, s.Client, s.Recorder, before, s.cluster, before.Status.Conditions, s.cluster.Status.Conditions)
}

// reconcile writes the decision into the status before it executes the step. So people, and an operator that takes over, can read which
// step was about to be executed.
func (s *scope) reconcile(ctx context.Context, before *v1alpha1.EtcdCluster) (ctrl.Result, error) {
	if blocked := s.prepare(ctx); blocked != nil {
		s.report(nil, decision{}, blocked)
		if err := s.save(ctx, before); err != nil {
			return ctrl.Result{}, err
		}
		return ctrl.Result{RequeueAfter: conditions.Earliest(s.after, conditions.Cause(blocked).After)}, retriable(blocked)
	}
	observed, err := s.observe(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	s.reportObservation(observed)
	if err := s.compare(ctx, observed); err != nil {
		return ctrl.Result{}, err
	}
	if s.podSecretsErr != nil {
		s.report(observed, wait(conditions.Cause(s.podSecretsErr).Reason, "%s", s.podSecretsErr), s.userError)
		return ctrl.Result{RequeueAfter: conditions.Earliest(whileWaiting, s.after)}, s.save(ctx, before)
	}
	d := s.explain(observed, decide(observed.observation))
	if err := s.reportBackups(ctx); err != nil {
		return ctrl.Result{}, err
	}
	s.report(observed, s.refusedBefore(observed, d), s.userError)
	if err := s.save(ctx, before); err != nil {
		return ctrl.Result{}, err
	}
	return s.execute(ctx, observed, d)
}

// explain adds details to the message of a decision. If a wait cannot end by itself, the decision becomes one that requires action.
func (s *scope) explain(observed *clusterSnapshot, d decision) decision {
	if trouble := observed.trouble(s.Now()); d.step == stepWait {
		d.why += trouble.String()
		if trouble.Stalled() {
			d.step = stepActionRequired
		}
	}
	if d.reason == reasonQuorumLost {
		d.why += s.describeRevisions(observed)
	}
	return d
}

func pause(d decision) time.Duration {
	switch d.step {
	case stepNothing, stepActionRequired:
		return whenSettled
	case stepWait:
		return whileWaiting
	default:
		return afterStep
	}
}

// prepare creates the objects that pods need. Its error becomes a condition, or is retriable.
func (s *scope) prepare(ctx context.Context) error {
	objects := certificates(s.cluster)
	applyErr := cmp.Or(apply.All(ctx, s.Client, s.cluster, objects...),
		apply.All(ctx, s.Client, s.cluster, peerService(s.cluster), clientService(s.cluster)), s.applyOptional(ctx))
	if applyErr != nil && (retriable(applyErr) != nil || s.cluster.Status.ClusterID == "") {
		return applyErr
	}
	var issued []*certmanager.Certificate
	for _, object := range objects {
		wanted, ok := object.(*certmanager.Certificate)
		if !ok {
			continue
		}
		live := &certmanager.Certificate{}
		if err := s.Get(ctx, client.ObjectKeyFromObject(wanted), live); client.IgnoreNotFound(err) != nil {
			return err
		}
		if err := pki.Issued(wanted.Name, live); err != nil {
			s.certificatesErr = cmp.Or(s.certificatesErr, s.checkIssuer(ctx, wanted), err)
		}
		issued = append(issued, live)
	}
	s.issued = issued
	unreachable := s.readSecrets(ctx)
	if retriable(unreachable) != nil {
		return unreachable
	}
	if err := cmp.Or(s.applyTrust(ctx), unreachable); err != nil {
		return cmp.Or(applyErr, err)
	}
	s.userError = cmp.Or(applyErr, s.userError) // running members are maintained nevertheless
	return nil
}

// checkIssuer checks that the issuer in the spec exists, if it issues a certificate.
func (s *scope) checkIssuer(ctx context.Context, wanted *certmanager.Certificate) error {
	tls := s.cluster.Spec.TLS
	if tls == nil || tls.IssuerRef == nil || wanted.Spec.IssuerRef != pki.Issuer(*tls.IssuerRef) {
		return nil
	}
	return pki.CheckIssuer(ctx, s.Client, "spec.tls.issuerRef", wanted)
}

// applyOptional creates or removes the objects that a spec can disable.
func (s *scope) applyOptional(ctx context.Context) error {
	budget, wanted := disruptionBudget(s.cluster)
	if err := apply.Optional(ctx, s.Client, s.cluster, wanted, budget); err != nil {
		return err
	}
	monitor, wanted := serviceMonitor(s.cluster)
	err := apply.Optional(ctx, s.Client, s.cluster, wanted, monitor)
	if apimeta.IsNoMatchError(err) {
		s.userError = workload.NoServiceMonitors()
		return nil
	}
	return err
}

// readSecrets reads the Secrets of certificates. The operator connects to members with its own certificate, or else with the one of
// clients, and pods cannot start without the Secrets that they mount. Anything else that is missing is only reported.
func (s *scope) readSecrets(ctx context.Context) error {
	s.leaves = map[string]*corev1.Secret{}
	name := s.cluster.Name
	for _, leaf := range []string{serverName(name), peerName(name), ClientSecretName(name), operatorName(name)} {
		secret, err := s.readKeys(ctx, leaf, corev1.TLSCertKey, corev1.TLSPrivateKeyKey, "ca.crt")
		if retriable(err) != nil {
			return err
		}
		mounted := leaf == serverName(name) || leaf == peerName(name)
		switch {
		case err != nil:
			s.certificatesErr = cmp.Or(s.certificatesErr, err)
			if mounted {
				s.podSecretsErr = cmp.Or(s.podSecretsErr, err)
			}
			continue
		case !mounted:
			s.secret = secret
		}
		s.leaves[leaf] = secret
	}
	if s.secret == nil {
		return s.certificatesErr
	}
	return nil
}

func (s *scope) readKeys(ctx context.Context, name string, keys ...string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := s.Get(ctx, client.ObjectKey{Namespace: s.cluster.Namespace, Name: name}, secret)
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	for _, key := range keys {
		if len(secret.Data[key]) > 0 {
			continue
		}
		if s.certificatesErr != nil {
			return nil, s.certificatesErr
		}
		return nil, conditions.Wait("CertificateNotReady",
			"waiting for key %s in Secret %s: the issuer has not published its CA certificate", key, name)
	}
	return secret, nil
}

func (s *scope) hostOf(ordinal int) string {
	if s.host != nil {
		return s.host(s.cluster, memberName(s.cluster, ordinal))
	}
	return memberHost(s.cluster, memberName(s.cluster, ordinal))
}

func (s *scope) peerURL(ordinal int) string {
	return fmt.Sprintf("https://%s:%d", s.hostOf(ordinal), PeerPort)
}
