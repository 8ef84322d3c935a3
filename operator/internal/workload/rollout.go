package workload

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
)

// Annotations of a StatefulSet, which sum up what its pods were asked for with, and what they were made into.
const (
	askedAnnotation = "operator.kcp.io/asked"
	madeAnnotation  = "operator.kcp.io/made"
)

// Hold tells in a condition whether the pods of a StatefulSet stay as they are, although they would be made otherwise now. If nothing has
// changed that they are made of, the inputs and what its owner asks for, then it is this operator that differs from the one which made
// them, and nobody has asked for them to be replaced. Their number does not matter. Where none is ready there is nothing to wait for.
func Hold(owner client.Object, live, set *appsv1.StatefulSet, inputs ...any) (metav1.Condition, error) {
	template, err := json.Marshal(set.Spec.Template)
	if err != nil {
		return metav1.Condition{}, err
	}
	asked := fmt.Sprint(owner.GetGeneration(), owner.GetAnnotations()[v1alpha1.RolloutAnnotation], inputs)
	metav1.SetMetaDataAnnotation(&set.ObjectMeta, askedAnnotation, sum([]byte(asked)))
	metav1.SetMetaDataAnnotation(&set.ObjectMeta, madeAnnotation, sum(template))
	condition := metav1.Condition{Type: v1alpha1.ConditionRolloutHeld, Status: metav1.ConditionFalse, Reason: "UpToDate",
		ObservedGeneration: owner.GetGeneration()}
	if live != nil && !Made(live, set) && live.Annotations[askedAnnotation] == set.Annotations[askedAnnotation] &&
		live.Annotations[madeAnnotation] != "" && live.Status.ReadyReplicas > 0 {
		condition.Status, condition.Reason = metav1.ConditionTrue, "OperatorChanged"
		condition.Message = "this version of the operator creates different pods: they are replaced with the next change of the spec or of the " +
			"annotation " +
			v1alpha1.RolloutAnnotation
		if by := metav1.GetControllerOf(owner); by != nil {
			condition.Message += " of " + by.Kind + " " + by.Name
		}
	}
	return condition, nil
}

// Made tells whether a StatefulSet makes its pods as another one does, of which Hold was asked.
func Made(live, set *appsv1.StatefulSet) bool {
	return live.Annotations[madeAnnotation] == set.Annotations[madeAnnotation]
}

func sum(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
