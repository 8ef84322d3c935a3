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

// How soon to look again: after a step, while something is under way, and when there is nothing to do.
const (
	afterStep    = 500 * time.Millisecond
	whileWaiting = 2 * time.Second
	whenSettled  = 30 * time.Second
)

// Reconciler of EtcdClusters.
type Reconciler struct {
	client.Client
	// Live reads what the caches do not hold, since it is not the operator's.
	Live     client.Reader
	Recorder events.EventRecorder
	Now      func() time.Time
	// Repository of the images of members. Their tags are versions of etcd, with a v.
	Repository string
	// Version of etcd for clusters whose specs name none, when they are made.
	Version string
	// Pods is what the installation allows to them.
	Pods workload.Security
	// StepErrors counts failed steps. Nil: they are not counted.
	StepErrors *prometheus.CounterVec
	// ask overrides how members are asked, for tests without members.
	ask func(clients map[int]memberClient) map[int]answer
	// host overrides the names that members are found by, for tests without DNS.
	host func(cluster *v1alpha1.EtcdCluster, member string) string
}

// scope is one EtcdCluster that is reconciled.
type scope struct {
	*Reconciler
	cluster *v1alpha1.EtcdCluster
	secret  *corev1.Secret            // that the members accept the operator by
	leaves  map[string]*corev1.Secret // Secrets of certificates, as far as they exist
	// unmounted is why no pod could start now.
	unmounted error
	// trusted vouches for the members.
	trusted []byte
	// authorities is a hash of whom the members trust, and of who has signed what they show.
	authorities string
	rotation    rotation
	// issued are the Certificates of the cluster. Nil: they were not read.
	issued []*certmanager.Certificate
	// certificatesErr is why a certificate is not ready, though the members may go on with the one that they have.
	certificatesErr error
	// after is when to look again for what no watch tells of, such as a certificate that should have been renewed.
	after time.Duration
	// userError is what a user has to change. The members are looked after all the same.
	userError error
}

// Reconcile looks at the cluster, decides on one step, and takes it.
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

// reconcile observes the cluster, decides on one step, writes the decision into the status, and then executes the step: people, and an
// operator that takes over, can read what was about to happen.
func (s *scope) reconcile(ctx context.Context, before *v1alpha1.EtcdCluster) (ctrl.Result, error) {
	if blocked := s.prepare(ctx); blocked != nil {
		s.report(nil, decision{}, blocked)
		if err := s.save(ctx, before); err != nil {
			return ctrl.Result{}, err
		}
		return ctrl.Result{RequeueAfter: conditions.Earliest(s.after, conditions.Cause(blocked).After)}, retriable(blocked)
	}
	seen, err := s.observe(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	s.reportObservation(seen)
	if err := s.compare(seen); err != nil {
		return ctrl.Result{}, err
	}
	if s.unmounted != nil {
		s.report(seen, wait(conditions.Cause(s.unmounted).Reason, "%s", s.unmounted), s.userError)
		return ctrl.Result{RequeueAfter: conditions.Earliest(whileWaiting, s.after)}, s.save(ctx, before)
	}
	d := s.explain(seen, decide(seen.observation))
	if err := s.reportBackups(ctx); err != nil {
		return ctrl.Result{}, err
	}
	s.report(seen, s.refusedBefore(seen, d), s.userError)
	if err := s.save(ctx, before); err != nil {
		return ctrl.Result{}, err
	}
	return s.execute(ctx, seen, d)
}

// explain adds to a decision what a person needs to act on it. A wait that does not end by itself becomes a request for help.
func (s *scope) explain(seen *clusterSnapshot, d decision) decision {
	if trouble := seen.trouble(s.Now()); d.step == stepWait {
		d.why += trouble.String()
		if trouble.Stalled() {
			d.step = stepHelp
		}
	}
	if d.reason == reasonQuorumLost {
		d.why += s.survivors(seen)
	}
	return d
}

func pause(d decision) time.Duration {
	switch d.step {
	case stepNothing, stepHelp:
		return whenSettled
	case stepWait:
		return whileWaiting
	default:
		return afterStep
	}
}

// prepare makes what pods need before there can be any. Its error is a condition, or worth trying again.
func (s *scope) prepare(ctx context.Context) error {
	objects := certificates(s.cluster)
	unmade := cmp.Or(apply.All(ctx, s.Client, s.cluster, objects...),
		apply.All(ctx, s.Client, s.cluster, peerService(s.cluster), clientService(s.cluster)), s.applyOptional(ctx))
	if unmade != nil && (retriable(unmade) != nil || s.cluster.Status.ClusterID == "") {
		return unmade
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
		return cmp.Or(unmade, err)
	}
	s.userError = cmp.Or(unmade, s.userError) // the members that run are looked after
	return nil
}

// checkIssuer looks for the issuer that the spec names, if that is who is to issue a certificate.
func (s *scope) checkIssuer(ctx context.Context, wanted *certmanager.Certificate) error {
	tls := s.cluster.Spec.TLS
	if tls == nil || tls.IssuerRef == nil || wanted.Spec.IssuerRef != pki.Issuer(*tls.IssuerRef) {
		return nil
	}
	return pki.CheckIssuer(ctx, s.Client, s.cluster.Namespace, "spec.tls.issuerRef", wanted.Spec.IssuerRef)
}

// applyOptional makes or removes what a spec can do without.
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

// readSecrets reads the Secrets of certificates. Members are reached with that of the operator or else that of clients, and pods start with
// those that they mount: what else is missing is only reported.
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
				s.unmounted = cmp.Or(s.unmounted, err)
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
