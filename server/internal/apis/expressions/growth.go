package expressions

import (
	"context"
	"fmt"
	"reflect"
	"unsafe"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/mutation"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"
)

// MaxMutation limits the bytes that a mutation may write, and those of the resulting object: the limit of a request.
const MaxMutation = celconfig.MaxRequestSizeBytes

// bounded rejects mutations that write too many bytes. A value takes little memory as long as it refers to other values, each of which can
// be the same large value, but it is written in full when the mutation is applied.
type bounded struct{ admissioncel.MutatingEvaluator }

// ForInput implements admissioncel.MutatingEvaluator.
func (b bounded) ForInput(
	ctx context.Context, a *admission.VersionedAttributes, r *admissionv1.AdmissionRequest, inputs admissioncel.OptionalVariableBindings,
	namespace *corev1.Namespace, budget int64,
) (admissioncel.EvaluationResult, int64, error) {
	result, left, err := b.MutatingEvaluator.ForInput(ctx, a, r, inputs, namespace, budget)
	if err == nil && result.Error == nil && result.EvalResult != nil && written(result.EvalResult, MaxMutation) >= MaxMutation {
		result.Error = fmt.Errorf("the mutation writes more than %d bytes: write fewer or smaller fields", MaxMutation)
	}
	return result, left, err
}

// written returns the approximate size in bytes of a value when it is written in full. It stops counting at the
// limit.
func written(v ref.Val, most int64) int64 {
	n := int64(8)
	switch v := v.(type) {
	case types.String:
		n += int64(len(v))
	case types.Bytes:
		n += int64(len(v))
	case *mutation.JSONPatchVal:
		n += int64(len(v.Path) + len(v.From))
		if v.Val != nil {
			n += written(v.Val, most-n)
		}
	case *dynamic.ObjectVal:
		for name, field := range fieldsOf(v) {
			if n < most {
				n += int64(len(name)) + written(field, most-n)
			}
		}
	case traits.Mapper:
		for i := v.Iterator(); n < most && i.HasNext() == types.True; {
			key := i.Next()
			n += written(key, most-n)
			n += written(v.Get(key), most-n)
		}
	case traits.Lister:
		for i := v.Iterator(); n < most && i.HasNext() == types.True; {
			n += written(i.Next(), most-n)
		}
	case *types.Optional:
		if v.HasValue() {
			n += written(v.GetValue(), most-n)
		}
	}
	return min(n, max(most, 0))
}

// fieldsOf returns the fields of an object, which upstream otherwise returns only in written form.
func fieldsOf(v *dynamic.ObjectVal) map[string]ref.Val {
	fields := reflect.ValueOf(v).Elem().FieldByName("fields")
	return *(*map[string]ref.Val)(unsafe.Pointer(fields.UnsafeAddr()))
}
