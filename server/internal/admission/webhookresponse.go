package admission

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/kcplane/kcp/server/internal/process/outbound"
)

// Limits of the content of an answer.
const (
	// maxPatchOperations is what upstream allows in a patch of a client.
	maxPatchOperations = 10000
	maxStatusBytes     = 16 << 10
	maxAnnotationBytes = 64 << 10
	// checkedBytes is the size from which on an answer is checked: a smaller one cannot hold too much.
	checkedBytes = 16 << 10
)

// WebhookLimits are those of calls to admission webhooks. An answer may replace the whole object by a patch, encoded in base64. A request
// holds two objects at the most; webhooks that make an object larger one after the other do not make it larger than that.
var WebhookLimits = outbound.Limits{Bytes: 1 << 20, Factor: 2, Sent: 16 << 20, Time: 35 * time.Second, Check: checkReview}

// checkReview refuses an AdmissionReview that asks for too much.
func checkReview(content []byte) error {
	if len(content) < checkedBytes {
		return nil
	}
	var review struct {
		Response struct {
			Patch            []byte
			AuditAnnotations map[string]string
			Status           json.RawMessage
		}
	}
	if err := json.Unmarshal(content, &review); err != nil {
		return fmt.Errorf("the answer is not an AdmissionReview: %w", err)
	}
	annotations := 0
	for key, value := range review.Response.AuditAnnotations {
		annotations += len(key) + len(value)
	}
	switch status := len(review.Response.Status); {
	case status > maxStatusBytes:
		return fmt.Errorf("response.status of the answer has %d bytes, the limit is %d", status, maxStatusBytes)
	case annotations > maxAnnotationBytes:
		return fmt.Errorf("response.auditAnnotations of the answer have %d bytes, the limit is %d", annotations, maxAnnotationBytes)
	}
	return checkPatch(review.Response.Patch)
}

// checkPatch counts the operations of a patch before they are decoded together.
func checkPatch(patch []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(patch))
	if token, err := decoder.Token(); err != nil || token != json.Delim('[') {
		return nil // upstream tells what is wrong
	}
	var operation json.RawMessage
	for n := 1; decoder.More(); n++ {
		if n > maxPatchOperations {
			return fmt.Errorf("response.patch of the answer has more than %d operations, which is the limit", maxPatchOperations)
		}
		if err := decoder.Decode(&operation); err != nil {
			return nil
		}
	}
	return nil
}
