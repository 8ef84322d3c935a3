package rootshard

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/apply"
)

// askedAnnotation, on a StatefulSet, sums up what it was made of.
const askedAnnotation = "operator.kcp.io/asked"

// held tells whether a StatefulSet stays as it is, although it would be made otherwise now: if nothing has changed that it is made
// of, then it is this operator that differs from the one which made it, and nobody has asked for pods to be replaced: an
// autoscaler, which changes their number, has not. Where none is ready there is nothing to wait for.
func (s *scope) held(live, set *appsv1.StatefulSet) (bool, error) {
	asked := fmt.Sprint(s.rs.Generation, s.rs.Annotations[v1alpha1.RolloutAnnotation], s.shard.Image, ptr.Deref(s.rs.Spec.Replicas, 0), s.shard.Etcd, s.shard.Inputs)
	asked = hash(map[string][]byte{"": []byte(asked)}, []string{""})
	metav1.SetMetaDataAnnotation(&set.ObjectMeta, askedAnnotation, asked)
	same, err := apply.Applied(s.Scheme(), s.rs, set, live)
	held := err == nil && !same && live.Annotations[askedAnnotation] == asked && live.Status.ReadyReplicas > 0
	condition := metav1.Condition{Type: v1alpha1.ConditionRolloutHeld, Status: metav1.ConditionFalse, Reason: "UpToDate", ObservedGeneration: s.rs.Generation}
	if held {
		condition.Status, condition.Reason = metav1.ConditionTrue, "OperatorChanged"
		condition.Message = "this operator makes pods otherwise than the one before: they are replaced with the next change of the spec, or of the annotation " +
			v1alpha1.RolloutAnnotation
	}
	meta.SetStatusCondition(&s.rs.Status.Conditions, condition)
	return held, err
}
