// Package shards makes a server one shard of an installation: it registers the shard in root, and follows the state of the others.
package shards

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Registration is what a shard says about itself when it starts.
type Registration struct {
	BaseURL             string `json:"baseURL"`
	ExternalURL         string `json:"externalURL"`
	VirtualWorkspaceURL string `json:"virtualWorkspaceURL"`
	// Incarnation is the ID of the store of the shard.
	Incarnation string `json:"incarnation"`
	// Adopt accepts another incarnation than the registered one, and puts the shard into quarantine.
	Adopt bool `json:"adopt,omitempty"`
}

// Installation is the answer: which installation the shard belongs to now.
type Installation struct {
	// ID is the incarnation of the root shard when the installation began.
	ID string `json:"id"`
}

// CallRegister is the peer call by which a shard registers.
const CallRegister = "shards.register"

var shardResource = corev1alpha1.Resource("shards")

// Registry creates and updates the Shard objects in root.
type Registry struct {
	// Shards stores them.
	Shards storage.Objects
	// Installation is the ID of the installation.
	Installation string
}

// Register registers the shard that calls. A shard can only register itself.
func (r *Registry) Register(ctx context.Context, caller peers.Identity, in Registration) (Installation, error) {
	ctx = logicalcluster.WithName(ctx, logicalcluster.Root)
	shard := &corev1alpha1.Shard{
		TypeMeta:   metav1.TypeMeta{APIVersion: corev1alpha1.SchemeGroupVersion.String(), Kind: "Shard"},
		ObjectMeta: metav1.ObjectMeta{Name: caller.Name},
	}
	if in.BaseURL == "" || in.Incarnation == "" {
		return Installation{}, apierrors.NewBadRequest("a shard registers with its URL and the ID of its store")
	}
	if err := describe(shard, in); err != nil {
		return Installation{}, err
	}
	rest.FillObjectMetaSystemFields(shard)
	shard.Generation = 1
	err := r.Shards.Create(ctx, caller.Name, shard)
	if apierrors.IsAlreadyExists(err) {
		err = r.Shards.Update(ctx, caller.Name, &corev1alpha1.Shard{}, func(obj runtime.Object) error {
			return describe(obj.(*corev1alpha1.Shard), in)
		})
	}
	return Installation{ID: r.Installation}, err
}

// describe writes a registration into a Shard, or returns a conflict if the Shard belongs to another store.
func describe(shard *corev1alpha1.Shard, in Registration) error {
	known := shard.Annotations[corev1alpha1.IncarnationAnnotation]
	if known != "" && known != in.Incarnation && !in.Adopt {
		return apierrors.NewConflict(shardResource, shard.Name, fmt.Errorf("it belongs to the store %s, and this server has the store %s: "+
			"another server may have the same --shard-name, or the store was restored or replaced; only in the latter case, "+
			"start with --adopt-shard", known, in.Incarnation))
	}
	if known != "" && known != in.Incarnation {
		metav1.SetMetaDataAnnotation(&shard.ObjectMeta, corev1alpha1.QuarantineAnnotation, in.Incarnation)
	}
	metav1.SetMetaDataAnnotation(&shard.ObjectMeta, corev1alpha1.IncarnationAnnotation, in.Incarnation)
	if shard.Labels["name"] == "" {
		metav1.SetMetaDataLabel(&shard.ObjectMeta, "name", shard.Name)
	}
	spec := corev1alpha1.ShardSpec{BaseURL: in.BaseURL, ExternalURL: in.ExternalURL, VirtualWorkspaceURL: in.VirtualWorkspaceURL}
	if shard.Spec != spec && shard.Generation > 0 {
		shard.Generation++
	}
	shard.Spec = spec
	return nil
}

// Records stores what this server itself must remember.
type Records interface {
	Record(ctx context.Context, name string) (value string, err error)
	SetRecord(ctx context.Context, name, value string) error
}

// InstallationRecord is the record with the ID of the installation that this store belongs to.
const InstallationRecord = "installation"

// Registrar registers this shard.
type Registrar struct {
	// Name is the name of this shard.
	Name string
	// Registration is what it says.
	Registration Registration
	// Send sends the registration to root.
	Send    func(context.Context, Registration) (Installation, error)
	Records Records
	Clock   clock.Clock
}

// retryInterval is the time between attempts to register, registerTimeout the time of one.
const retryInterval, registerTimeout = 2 * time.Second, 5 * time.Second

// Start registers the shard. A store that was registered before does not wait for root: it tries again until ctx ends, in the background of
// the caller, with the returned function, which is nil if the shard is registered. A refusal is an error.
func (r *Registrar) Start(ctx context.Context) (later func(context.Context), err error) {
	known, err := r.Records.Record(ctx, InstallationRecord)
	if err != nil {
		return nil, err
	}
	err = r.register(ctx, known)
	switch {
	case err == nil || !retriable(err):
		return nil, err
	case known != "":
		klog.FromContext(ctx).Info("The root shard does not respond, will register later", decisionlog.Reason, err)
		return func(ctx context.Context) { _ = r.retry(ctx, known) }, nil
	}
	klog.FromContext(ctx).Info("Waiting for the root shard, to register for the first time", decisionlog.Reason, err)
	return nil, r.retry(ctx, known)
}

// retry registers until that succeeds or is refused.
func (r *Registrar) retry(ctx context.Context, known string) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.Clock.After(retryInterval):
		}
		if err := r.register(ctx, known); err == nil || !retriable(err) {
			if err != nil {
				klog.FromContext(ctx).Error(err, "Registering this shard in root failed")
			}
			return err
		}
	}
}

// register sends the registration once. known is the installation that the store belongs to, if any.
func (r *Registrar) register(ctx context.Context, known string) error {
	sending, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	got, err := r.Send(sending, r.Registration)
	if err != nil {
		return fmt.Errorf("registering shard %q in root: %w", r.Name, err)
	}
	switch {
	case got.ID == "":
		return fmt.Errorf("registering shard %q in root: the root shard did not name its installation", r.Name)
	case known == got.ID:
		return nil
	case known != "":
		return fmt.Errorf("this store belongs to installation %s, but the root shard at --root-shard-kubeconfig-file is that of "+
			"installation %s: correct the kubeconfig, or use an empty store", known, got.ID)
	}
	return r.Records.SetRecord(ctx, InstallationRecord, got.ID)
}

// retriable reports whether a registration can succeed later.
func retriable(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) ||
			apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err)
	}
	return peers.IsUnreachable(err)
}
